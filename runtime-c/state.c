// The one global struct.

#include "state.h"

Runtime runtime = {.lock = LOCK_INIT, .messages = {.lock = LOCK_INIT}};
