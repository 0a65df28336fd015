/* Manual pages in mdoc(7), checked by `mandoc -T lint` in the tests. A text is escaped where roff
 * would read it: backslashes, and a dot or quote that begins a line.
 * SPDX-License-Identifier: Apache-2.0 */
#include <ctype.h>
#include <stdio.h>
#include <string.h>

#include "cli/help.h"

#define PAGE_DATE "November 30, 2026" /* of the format of these pages, so that builds repeat */

/* A sentence a line, as mdoc wants it; an empty line becomes a new paragraph. */
static void put_text(nw_buf *out, const char *s)
{
    for (bool line_start = true; *s != '\0'; s++) {
        if (line_start && (*s == '.' || *s == '\'')) {
            (void)nw_buf_puts(out, "\\&");
        }
        line_start = false;
        if (*s == '\\') {
            (void)nw_buf_puts(out, "\\e");
        } else if (s[0] == '\n' && s[1] == '\n') {
            (void)nw_buf_puts(out, "\n.Pp\n");
            s++;
            line_start = true;
        } else if (s[0] == '.' && s[1] == ' ' && isupper((unsigned char)s[2]) != 0) {
            (void)nw_buf_puts(out, ".\n");
            s++;
            line_start = true;
        } else {
            (void)nw_buf_add(out, s, 1);
            line_start = *s == '\n';
        }
    }
    (void)nw_buf_puts(out, "\n");
}

/* Operands are words of the usage line; brackets mark what may be left out. */
static void put_operands(nw_buf *out, const char *s)
{
    while (*s != '\0') {
        const size_t len = strcspn(s, " ");
        const bool optional = len > 2 && s[0] == '[' && s[len - 1] == ']';
        (void)nw_buf_printf(out, ".%sAr %.*s\n", optional ? "Op " : "",
                            (int)(optional ? len - 2 : len), optional ? s + 1 : s);
        s += len;
        s += strspn(s, " ");
    }
}

static void put_option(nw_buf *out, const nw_option *o)
{
    const bool number = o->type == NW_OPT_INT || o->type == NW_OPT_DOUBLE;
    const char *value =
        o->type == NW_OPT_CHOICE ? o->choices : (o->unit == NULL ? "text" : o->unit);

    (void)nw_buf_puts(out, ".It ");
    if (o->letter != 0) {
        (void)nw_buf_printf(out, "Fl %c , ", o->letter);
    }
    (void)nw_buf_printf(out, "Fl \\-%s", o->name);
    if (o->type != NW_OPT_FLAG) {
        (void)nw_buf_printf(out, " Ar %s", number ? "number" : value);
    }
    (void)nw_buf_puts(out, "\n");
    nw_buf text;
    nw_buf_init(&text, SIZE_MAX);
    nw_help_explain(o, &text);
    put_text(out, text.data == NULL ? "" : text.data);
    nw_buf_release(&text);
}

static void put_options(nw_buf *out, const nw_option *options, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        put_option(out, &options[i]);
    }
}

static void put_exit_status(nw_buf *out)
{
    static const char *const rows[][2] = {
        {"0", "done, and every gate passes"},
        {"1", "done, and a gate failed or is undecided"},
        {"2", "wrong usage"},
        {"3", "an input was refused"},
        {"4", "a fault of the machine, a file or a peer"},
        {"130", "stopped by a signal; the state left behind resumes"},
    };

    (void)nw_buf_puts(out, ".Sh EXIT STATUS\n.Bl -tag -width Ds\n");
    for (size_t i = 0; i < NW_COUNT(rows); i++) {
        (void)nw_buf_printf(out, ".It %s\n%s\n", rows[i][0], rows[i][1]);
    }
    (void)nw_buf_puts(out, ".El\n");
}

static void put_head(nw_buf *out, const char *name, const char *summary)
{
    (void)nw_buf_printf(out, ".Dd %s\n.Dt ", PAGE_DATE);
    for (const char *p = name; *p != '\0'; p++) {
        const char upper = (char)toupper((unsigned char)*p);
        (void)nw_buf_add(out, &upper, 1);
    }
    (void)nw_buf_printf(out, " 1\n.Os\n.Sh NAME\n.Nm %s\n.Nd %s\n.Sh SYNOPSIS\n.Nm narrow\n", name,
                        summary);
}

static void put_command_page(const nw_command *c, nw_buf *out)
{
    char name[64];
    size_t n_global = 0;
    const nw_option *global = nw_options_global(c, &n_global);

    (void)snprintf(name, sizeof name, "narrow-%s", c->name);
    put_head(out, name, c->summary);
    (void)nw_buf_printf(out, ".Cm %s\n", c->name);
    put_operands(out, c->operands);
    (void)nw_buf_puts(out, ".Op Ar options\n.Sh DESCRIPTION\n");
    put_text(out, c->description == NULL ? c->summary : c->description);
    (void)nw_buf_puts(out, ".Bl -tag -width Ds\n");
    put_options(out, c->options, c->n_options);
    put_options(out, global, n_global);
    (void)nw_buf_puts(out, ".El\n");
    put_exit_status(out);
    (void)nw_buf_puts(out, ".Sh SEE ALSO\n.Xr narrow 1\n");
}

static void put_program_page(nw_buf *out)
{
    size_t n = 0;
    const nw_command *const *c = nw_commands(&n);

    put_head(out, "narrow", "choose and prove a reduced-precision deployment of a language model");
    (void)nw_buf_puts(out, ".Ar command\n.Op Ar operands\n.Op Ar options\n.Sh DESCRIPTION\n"
                           "The commands are:\n.Bl -tag -width Ds\n");
    for (size_t i = 0; i < n; i++) {
        (void)nw_buf_printf(out, ".It Cm %s\n%s\n", c[i]->name, c[i]->summary);
    }
    (void)nw_buf_puts(out,
                      ".El\n.Pp\nResults go to the standard output, everything else to the "
                      "standard error.\n"
                      ".Sh ENVIRONMENT\n.Bl -tag -width Ds\n"
                      ".It Ev NW_CPU_MASK\nprocessor features to leave unused, as a comma list;\n"
                      ".Dq ref\nfor all of them\n"
                      ".It Ev NW_LOG\n.Dq json\nfor log lines as JSON\n.El\n");
    put_exit_status(out);
}

void nw_help_man(const nw_command *c, nw_buf *out)
{
    if (c == NULL) {
        put_program_page(out);
    } else {
        put_command_page(c, out);
    }
}
