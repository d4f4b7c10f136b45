// Why an installed driver does not show. The Vulkan loader silently leaves out a driver whose library cannot be loaded.
// On a server the cause is often another missing library. So the manifests are read where the loader looks for them,
// and each driver is loaded once more to hear what the system says.

#include "device/drivers.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/platform.h"

typedef struct Report {
    char *text;
    uint32_t used, capacity, count;
} Report;

#if defined(_WIN32)

// The registry names drivers there, and they bring what they need.
static void report_drivers(Report *report) { (void)report; }

#else

#include <dirent.h>
#include <dlfcn.h>
#include <sys/stat.h>

#define PATH_BYTES 4096
#define MANIFEST_BYTES (1 << 20)

// A line "manifest\tlibrary\treason" without other control characters; a line that does not fit is left out.
static void add_line(Report *report, const char *manifest, const char *library, const char *reason) {
    char line[2 * PATH_BYTES];
    report->count++;
    int length = snprintf(line, sizeof line, "%s%c%s%c%s", manifest, 0, library, 0, reason);
    if (length < 0 || (size_t)length >= sizeof line || (uint32_t)length + 2 > report->capacity - report->used) return;
    for (int i = 0; i < length; i++) {
        unsigned char c = (unsigned char)line[i];
        line[i] = c == 0 ? '\t' : c < 0x20 || c == 0x7f ? ' ' : line[i];
    }
    memcpy(report->text + report->used, line, (size_t)length);
    report->used += (uint32_t)length;
    report->text[report->used++] = '\n';
    report->text[report->used] = 0;
}

// The string at "library_path", unescaped as far as paths need it. Manifests are small and flat, so no more of JSON is
// read.
static bool library_path(const char *json, char *out, size_t capacity) {
    const char *at = strstr(json, "\"library_path\"");
    if (!at) return false;
    at += strlen("\"library_path\"");
    at += strspn(at, " \t\r\n");
    if (*at++ != ':') return false;
    at += strspn(at, " \t\r\n");
    if (*at++ != '"') return false;
    size_t used = 0;
    for (; *at && *at != '"'; at++) {
        if (*at == '\\' && at[1]) at++;
        if (used + 1 >= capacity) return false;
        out[used++] = *at;
    }
    out[used] = 0;
    return used > 0 && *at == '"';
}

// Libraries that a driver loads by itself, without which it shows no device.
static const struct {
    const char *driver, *library;
} COMPANIONS[] = {
    {"libGLX_nvidia", "libX11.so.6"},
    {"libGLX_nvidia", "libXext.so.6"},
    {"libEGL_nvidia", "libEGL.so.1"},
};

// Tries the driver of one manifest. A path with a slash that is not absolute begins at the manifest.
static void try_manifest(Report *report, const char *manifest) {
    struct stat info;
    if (stat(manifest, &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > MANIFEST_BYTES) return;
    size_t bytes = 0;
    char *json = file_read_whole(manifest, &bytes);
    char named[PATH_BYTES / 2], path[PATH_BYTES];
    bool found = false;
    if (json && bytes > 0) {
        json[bytes - 1] = 0; // a brace or a line end is there
        found = library_path(json, named, sizeof named);
    }
    free(json);
    if (!found) return;
    const char *slash = strrchr(manifest, '/');
    bool beside = strchr(named, '/') && named[0] != '/' && slash;
    int length = snprintf(path, sizeof path, "%.*s%s", beside ? (int)(slash + 1 - manifest) : 0, manifest, named);
    if (length < 0 || (size_t)length >= sizeof path) return;
    bool loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL) != NULL; // and stays: drivers do not like to be unloaded
    for (size_t i = 0; loaded && i < sizeof COMPANIONS / sizeof *COMPANIONS; i++)
        loaded = !strstr(path, COMPANIONS[i].driver) || dlopen(COMPANIONS[i].library, RTLD_NOW | RTLD_LOCAL);
    if (loaded) return;
    const char *reason = dlerror();
    if (reason && strstr(reason, "wrong ELF class")) return; // for programs of 32 bits
    add_line(report, manifest, path, reason ? reason : "the system does not say why");
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

// All manifests of a folder, in the order of their names.
static void try_folder(Report *report, const char *folder) {
    enum { MOST = 256 };
    char *names[MOST];
    uint32_t count = 0;
    DIR *dir = opendir(folder);
    if (!dir) return;
    for (struct dirent *entry; count < MOST && (entry = readdir(dir));) {
        size_t length = strlen(entry->d_name);
        if (length < 5 || strcmp(entry->d_name + length - 5, ".json") != 0) continue;
        names[count] = malloc(strlen(folder) + length + 2);
        if (!names[count]) break;
        sprintf(names[count++], "%s/%s", folder, entry->d_name);
    }
    closedir(dir);
    qsort(names, count, sizeof *names, by_name);
    for (uint32_t i = 0; i < count; i++) {
        try_manifest(report, names[i]);
        free(names[i]);
    }
}

// Every part of a list separated by colons, with `below` appended: a folder or a manifest.
static void try_list(Report *report, const char *list, const char *below) {
    while (list && *list) {
        size_t length = strcspn(list, ":");
        char path[PATH_BYTES];
        int n = snprintf(path, sizeof path, "%.*s%s", (int)length, list, below);
        struct stat info;
        if (length > 0 && n > 0 && (size_t)n < sizeof path && stat(path, &info) == 0) {
            if (S_ISDIR(info.st_mode)) try_folder(report, path);
            else try_manifest(report, path);
        }
        list += length + (list[length] == ':');
    }
}

static const char *variable(const char *name, const char *otherwise) {
    const char *value = getenv(name);
    return value && value[0] ? value : otherwise;
}

// Where the loader looks: what variables name, else the user's folders and those of the system.
static void report_drivers(Report *report) {
    try_list(report, variable("VK_ADD_DRIVER_FILES", NULL), "");
    const char *files = variable("VK_DRIVER_FILES", variable("VK_ICD_FILENAMES", NULL));
    if (files) {
        try_list(report, files, "");
        return;
    }
    const char *home = variable("HOME", NULL);
    static const struct {
        const char *name, *below_home, *below;
    } OWN[] = {
        {"XDG_CONFIG_HOME", "/.config/vulkan/icd.d", "/vulkan/icd.d"},
        {"XDG_DATA_HOME", "/.local/share/vulkan/icd.d", "/vulkan/icd.d"},
    };
    for (size_t i = 0; i < sizeof OWN / sizeof *OWN; i++) {
        const char *own = variable(OWN[i].name, NULL);
        try_list(report, own ? own : home, own ? OWN[i].below : OWN[i].below_home);
    }
    try_list(report, variable("XDG_CONFIG_DIRS", "/etc/xdg"), "/vulkan/icd.d");
    try_list(report, "/etc", "/vulkan/icd.d");
    try_list(report, variable("XDG_DATA_DIRS", "/usr/local/share:/usr/share"), "/vulkan/icd.d");
}

#endif

uint32_t driver_failures(char *text, uint32_t capacity) {
    Report report = {.text = text, .capacity = capacity};
    text[0] = 0;
    report_drivers(&report);
    return report.count;
}
