/* Texts made from the tables: see help.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "cli/help.h"

#include <stdio.h>
#include <string.h>

#define HELP_COLUMN 30 /* where the explanation of an option begins */
#define TEXT_WIDTH  88

/* Folds a text at spaces; an empty line in it stays. */
static void put_folded(nw_buf *out, const char *text, size_t indent, size_t column)
{
    size_t at = column;

    while (*text != '\0') {
        const size_t len = strcspn(text, " \n");
        if (at > indent && at + 1 + len > TEXT_WIDTH) {
            (void)nw_buf_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        (void)nw_buf_printf(out, "%s%.*s", at > indent ? " " : "", (int)len, text);
        at += len + (at > indent ? 1 : 0);
        text += len;
        if (*text == '\n') {
            (void)nw_buf_printf(out, "\n%*s", (int)indent, "");
            at = indent;
        }
        text += *text == '\0' ? 0 : 1;
    }
    (void)nw_buf_puts(out, "\n");
}

/* What stands for the value of an option; "" for a flag. */
static const char *value_name(const nw_option *o)
{
    switch (o->type) {
    case NW_OPT_FLAG:
        return "";
    case NW_OPT_INT:
        return "N";
    case NW_OPT_DOUBLE:
        return "X";
    case NW_OPT_CHOICE:
        return o->choices;
    case NW_OPT_STRING:
    case NW_OPT_REPEAT:
        return o->unit == NULL ? "TEXT" : o->unit;
    }
    return "";
}

void nw_help_explain(const nw_option *o, nw_buf *out)
{
    const char *comma = "";
    const bool number = o->type == NW_OPT_INT || o->type == NW_OPT_DOUBLE;

    (void)nw_buf_puts(out, o->help);
    if (!number && !o->required && o->fallback == NULL && o->type != NW_OPT_REPEAT) {
        return;
    }
    (void)nw_buf_puts(out, " (");
    if (number) {
        (void)nw_buf_printf(out, "%.16g to %.16g%s%s", o->lo, o->hi, o->unit == NULL ? "" : " ",
                            o->unit == NULL ? "" : o->unit);
        comma = "; ";
    }
    if (o->type == NW_OPT_REPEAT) {
        (void)nw_buf_printf(out, "%smay be repeated", comma);
        comma = "; ";
    }
    if (o->required) {
        (void)nw_buf_printf(out, "%srequired", comma);
    } else if (o->fallback != NULL) {
        (void)nw_buf_printf(out, "%sdefault %s", comma, o->fallback);
    }
    (void)nw_buf_puts(out, ")");
}

static void put_option(const nw_option *o, nw_buf *out)
{
    nw_buf text;
    const size_t start = out->len;
    const char *value = value_name(o);

    nw_buf_init(&text, SIZE_MAX);
    nw_help_explain(o, &text);
    if (o->letter != 0) {
        (void)nw_buf_printf(out, "  -%c, ", o->letter);
    } else {
        (void)nw_buf_puts(out, "      ");
    }
    (void)nw_buf_printf(out, "--%s%s%s", o->name, *value == '\0' ? "" : " ", value);
    size_t column = out->len - start;
    if (column + 2 > HELP_COLUMN) {
        (void)nw_buf_puts(out, "\n");
        column = 0;
    }
    (void)nw_buf_printf(out, "%*s", (int)(HELP_COLUMN - column), "");
    put_folded(out, text.data == NULL ? "" : text.data, HELP_COLUMN, HELP_COLUMN);
    nw_buf_release(&text);
}

void nw_help_day(nw_buf *out)
{
    static const char *const steps[][2] = {
        {"narrow doctor", "what this machine can run"},
        {"narrow inspect MODEL", "its shape, formats, effective bits and tokenizer"},
        {"narrow quantize MODEL --recipe R -o DIR", "write an artifact"},
        {"narrow generate ARTIFACT \"prompt\"", "read some of its text"},
        {"narrow study study.yaml", "quality, speed, gates and frontier of all candidates"},
        {"narrow report study.db -o report.html", "one page that shows why"},
        {"narrow serve ARTIFACT", "an OpenAI-compatible server for the winner"},
    };

    (void)nw_buf_puts(out, "The usual day with narrow:\n\n");
    for (size_t i = 0; i < NW_COUNT(steps); i++) {
        (void)nw_buf_printf(out, "  %zu  %-41s %s\n", i + 1, steps[i][0], steps[i][1]);
    }
    (void)nw_buf_puts(out,
                      "\n'narrow help' lists all commands, 'narrow help COMMAND' explains one.\n");
}

void nw_help_commands(nw_buf *out)
{
    size_t n = 0;
    const nw_command *const *c = nw_commands(&n);

    (void)nw_buf_puts(out, "usage: narrow COMMAND [OPERANDS] [OPTIONS]\n\n");
    for (size_t i = 0; i < n; i++) {
        (void)nw_buf_printf(out, "  %-12s %s\n", c[i]->name, c[i]->summary);
    }
    (void)nw_buf_puts(out,
                      "\n'narrow help COMMAND' explains one; 'narrow --version' says which this "
                      "is.\n");
}

void nw_help_command(const nw_command *c, nw_buf *out)
{
    size_t n_global = 0;
    const nw_option *global = nw_options_global(c, &n_global);

    (void)nw_buf_printf(out, "usage: narrow %s%s%s [OPTIONS]\n\n%s\n\n", c->name,
                        *c->operands == '\0' ? "" : " ", c->operands, c->summary);
    if (c->description != NULL) {
        put_folded(out, c->description, 0, 0);
        (void)nw_buf_puts(out, "\n");
    }
    for (size_t i = 0; i < c->n_options; i++) {
        put_option(&c->options[i], out);
    }
    for (size_t i = 0; i < n_global; i++) {
        put_option(&global[i], out);
    }
}

static void put_list(const char *choices, nw_buf *out)
{
    for (; *choices != '\0'; choices++) {
        (void)nw_buf_add(out, *choices == '|' ? " " : choices, 1);
    }
}

/* case "$prev" entries of one command: what may follow an option that takes a value */
static void put_bash_command(const nw_command *c, nw_buf *out)
{
    size_t n_global = 0;
    const nw_option *global = nw_options_global(c, &n_global);

    (void)nw_buf_printf(out, "    %s)\n        words=\"", c->name);
    for (size_t i = 0; i < c->n_options; i++) {
        (void)nw_buf_printf(out, "--%s ", c->options[i].name);
    }
    for (size_t i = 0; i < n_global; i++) {
        (void)nw_buf_printf(out, "--%s%s", global[i].name, i + 1 < n_global ? " " : "\"\n");
    }
    (void)nw_buf_puts(out, "        case $prev in\n");
    for (size_t i = 0; i < c->n_options; i++) {
        const nw_option *o = &c->options[i];
        if (o->type == NW_OPT_CHOICE) {
            (void)nw_buf_printf(out, "        --%s) choices=\"", o->name);
            put_list(o->choices, out);
            (void)nw_buf_puts(out, "\" ;;\n");
        }
    }
    (void)nw_buf_puts(out, "        esac\n        ;;\n");
}

void nw_help_bash(nw_buf *out)
{
    size_t n = 0;
    const nw_command *const *c = nw_commands(&n);

    (void)nw_buf_puts(out,
                      "# bash completion of narrow, printed by 'narrow completion bash'\n"
                      "_narrow()\n{\n"
                      "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]}\n"
                      "    local commands=\"");
    for (size_t i = 0; i < n; i++) {
        (void)nw_buf_printf(out, "%s%s", i > 0 ? " " : "", c[i]->name);
    }
    (void)nw_buf_puts(out,
                      "\" words= choices=\n"
                      "    if ((COMP_CWORD == 1)); then\n"
                      "        mapfile -t COMPREPLY < <(compgen -W \"$commands\" -- \"$cur\")\n"
                      "        return\n"
                      "    fi\n"
                      "    case ${COMP_WORDS[1]} in\n");
    for (size_t i = 0; i < n; i++) {
        put_bash_command(c[i], out);
    }
    (void)nw_buf_puts(out, "    esac\n"
                           "    if [[ ${COMP_WORDS[1]} == help ]] && [[ $cur != -* ]]; then\n"
                           "        choices=$commands\n"
                           "    fi\n"
                           "    if [[ -n $choices ]]; then\n"
                           "        mapfile -t COMPREPLY < <(compgen -W \"$choices\" -- \"$cur\")\n"
                           "    elif [[ $cur == -* ]]; then\n"
                           "        mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$cur\")\n"
                           "    fi\n"
                           "}\n"
                           "complete -o bashdefault -o default -F _narrow narrow\n");
}

nw_status nw_help_print(nw_buf *b, nw_error *err)
{
    nw_status st = NW_OK;

    if (b->failed) {
        st = nw_fail(err, NW_E_NOMEM, "no memory for the text");
    } else if (b->len > 0 && fwrite(b->data, 1, b->len, stdout) != b->len) {
        st = nw_fail(err, NW_E_IO, "stdout: cannot write");
    }
    nw_buf_release(b);
    return st;
}
