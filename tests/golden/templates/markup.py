"""Writes markup.json: pieces of the template language with markup, and capital letters, as rendered by Jinja2 in the environment of transformers.

python3 tests/golden/templates/markup.py     (PyPI: transformers 5.15.1, jinja2 3.1.6)
"""

import itertools
import json
import os

from transformers.utils.chat_template_utils import _compile_jinja_template

HERE = os.path.dirname(__file__)
M = "('<b>'|safe)"
PIECES = [
    f"{{{{ {M} + '<a>' }}}}", f"{{{{ '<a>' + {M} }}}}", f"{{{{ {M} + {M} }}}}", f"{{{{ {M} ~ '<a>' }}}}", f"{{{{ '<a>' ~ {M} ~ '&' }}}}",
    f"{{{{ ({M} ~ '<a>') + '<c>' }}}}", f"{{{{ {M} + '' + '<' }}}}", f"{{{{ '' + {M} + '<' }}}}", f"{{{{ {M} * 2 + '<' }}}}",
    f"{{{{ 2 * {M} + '<' }}}}", "{{ ('<%s|%d>'|safe) % ('<', 3) + '<' }}", "{{ ('%s'|safe) % '<' }}", "{{ '%s' % ('<'|safe) + '<' }}",
    "{{ ('%(a)s'|safe) % {'a': '<'} }}", "{{ ('<%s>'|safe) % [['<']] }}", "{{ ('%5.1f'|safe) % 2.25 + '<' }}",
    "{{ ('<{}>'|safe).format('<') + '<' }}", "{{ ('<{:>3}>'|safe).format('<') }}", "{{ ('{a}'|safe).format(a='<'|safe) }}",
    "{{ '{}'.format('<'|safe) + '<' }}", "{{ ('<{}>'|safe).format(['<']) }}", "{{ ('<%s>'|safe)|format('<') + '<' }}",
    "{{ ('<, >'|safe).join(['<', '<'|safe]) + '<' }}", "{{ ', '.join(['<'|safe]) + '<' }}", "{{ ['<'|safe, '<']|join('&'|safe) + '<' }}",
    "{{ ('<a>'|safe).replace('a', '&') + '<' }}", "{{ ('<a>'|safe)|replace('a', '&') + '<' }}", "{{ ('<'|safe)|replace('x', 'y') + '<' }}",
    *[f"{{{{ {M}.{call} + '<' }}}}" for call in (
        "upper()", "lower()", "strip()", "strip('<')", "title()", "capitalize()", "swapcase()", "zfill(9)", "ljust(5, '<')", "center(6, '&')",
        "rjust(4)", "removeprefix('<')", "split('b')[0]", "partition('b')[2]", "splitlines()[0]", "expandtabs()")],
    f"{{{{ {M}.find('b') }}}} {{{{ {M}.startswith('<') }}}}", f"{{{{ {M}[0] + '<' }}}}", f"{{{{ {M}[1:] + '<' }}}}", f"{{{{ {M}[::-1] + '<' }}}}",
    f"{{{{ {M}[::2] + '<' }}}}", f"{{{{ {M}|first + '<' }}}}", f"{{{{ ({M}|list)[0] + '<' }}}}",
    *[f"{{{{ ({M}|{name}) + '<' }}}}" for name in (
        "upper", "lower", "trim", "capitalize", "title", "string", "center(8)", "reverse", "e", "escape", "forceescape", "safe", "indent",
        "truncate(3, true, '<', 0)", "tojson", "wordwrap", "urlencode", "default('x')", "replace('b', '&')", "indent(2, true)")],
    "{{ '<'|e + '<' }}", "{{ '<'|e|e }}", "{{ '<'|e|forceescape }}", "{{ 5|e + '<' }}", "{{ ['<']|e }}", "{{ '<'|escape|length }}",
    "{{ ('<'|safe) == '<' }}", "{{ '<' in ('<b'|safe) }}", "{{ ('<'|safe) is escaped }} {{ '<' is escaped }} {{ '<'|e is escaped }}",
    "{{ ('<'|safe) is string }}", "{% set x %}<b>{% endset %}{{ x + '<' }}", "{% macro f() %}<b>{% endmacro %}{{ f() + '<' }}",
    "{% set x = '<'|safe %}{% set y = x + '&' %}{{ y + '>' }}", "{{ {'a': '<'|safe}.a + '<' }}", "{{ ('<'|safe) + ('&' ~ '<') }}",
    "{{ '<t>' + ({'a': '<'}|tojson|safe) + '</t>' }}", "{{ '<t>' ~ ({'a': '<'}|tojson|safe) ~ '</t>' }}", "{{ ('<'|safe) + 5 }}",
    "{{ ('a'|safe)|sum }}", "{{ (('<'|safe) ~ '') + '<' }}", "{{ ('' ~ ('<'|safe)) + '<' }}",
]
LETTERS = [
    "{{ '\u0149x'|capitalize }} {{ '\u01c6'|capitalize }} {{ '\u0149x'.capitalize() }} {{ '\u01c6'.title() }} {{ '\ufb01x'.title() }}",
    "{{ '\u0391\u03a3'|capitalize }} {{ '\u0391\u03a3 \u03a3x'.capitalize() }} {{ '\u0130X\u0130'|capitalize }} {{ '\u00dfX'|capitalize }}",
]
# Every character whose capital form is not simply its large one, and neighbours.
SPECIAL = [c for c in map(chr, itertools.chain(range(0xD800), range(0xE000, 0x20000))) if c.title() != c or c.upper() != c]
CAPITALS = [[c, c.title()] for c in SPECIAL if len(c.upper()) > 1 or c.title() != c.upper()]


def render(piece):
    try:
        return _compile_jinja_template(piece).render()
    except Exception:
        return None


with open(os.path.join(HERE, "markup.json"), "w") as file:
    json.dump({"pieces": [[p, render(p)] for p in PIECES + LETTERS], "capitals": CAPITALS}, file, indent=0)
    file.write("\n")
