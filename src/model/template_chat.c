/* One rendering: its variables, its output cut into segments by provenance, and the step from there to
 * ids.
 * SPDX-License-Identifier: Apache-2.0 */
#include <stdlib.h>
#include <string.h>

#include "model/template_internal.h"

void nw_segments_release(nw_segments *s)
{
    nw_arena_release(&s->arena);
    *s = (nw_segments){.n = 0};
}

char *nw_segments_join(const nw_segments *s, size_t *len)
{
    nw_buf b;

    nw_buf_init(&b, SIZE_MAX);
    (void)nw_buf_add(&b, "", 0);
    for (size_t i = 0; i < s->n; i++) {
        (void)nw_buf_add(&b, s->segs[i].text, s->segs[i].n);
    }
    *len = b.len;
    if (b.failed) {
        nw_buf_release(&b);
        return NULL;
    }
    return nw_buf_take(&b);
}

static nw_status set_var(nwt_env *e, const char *name, nwt_value value)
{
    nwt_value key;

    return nwt_str(e, name, strlen(name), false, &key) != NW_OK
               ? e->err->code
               : nwt_dict_set(e, &e->top->vars, key, value);
}

static nw_status set_text(nwt_env *e, const char *name, const char *text)
{
    nwt_value v;

    return nwt_str(e, text == NULL ? "" : text, text == NULL ? 0 : strlen(text), false, &v) != NW_OK
               ? e->err->code
               : set_var(e, name, v);
}

/* Jansson iterates over objects that are not const only; nothing is changed. */
static json_t *unconst(const json_t *v)
{
    return (json_t *)(uintptr_t)v;
}

static nw_status set_vars(nwt_env *e, const json_t *messages, const json_t *vars, bool add,
                          const char *bos, const char *eos)
{
    nwt_value v;
    const char *key = NULL;
    json_t *item = NULL;

    json_object_foreach(unconst(vars), key, item)
    {
        if (nwt_from_json(e, item, 0, &v) != NW_OK || set_var(e, key, v) != NW_OK) {
            return e->err->code;
        }
    }
    if (nwt_from_json(e, unconst(messages), 0, &v) != NW_OK || set_var(e, "messages", v) != NW_OK ||
        set_var(e, "add_generation_prompt", nwt_bool(add)) != NW_OK ||
        set_text(e, "bos_token", bos) != NW_OK) {
        return e->err->code;
    }
    return set_text(e, "eos_token", eos);
}

/* Cuts the output where its provenance changes. */
static nw_status cut(const nwt_env *e, nw_segments *out)
{
    const size_t n = e->text.len;
    size_t n_segs = 0;

    for (size_t i = 0; i < n; i++) {
        n_segs += i == 0 || e->marks.data[i] != e->marks.data[i - 1];
    }
    char *text = nw_arena_strndup(&out->arena, n == 0 ? "" : e->text.data, n);
    out->segs = nw_arena_array(&out->arena, n_segs + 1, sizeof *out->segs);
    if (text == NULL || out->segs == NULL) {
        return nw_fail(e->err, NW_E_NOMEM, "%s: no memory for %zu bytes of output", e->t->name, n);
    }
    for (size_t i = 0; i < n; i++) {
        if (i == 0 || e->marks.data[i] != e->marks.data[i - 1]) {
            out->segs[out->n++] = (nw_text_segment){text + i, 0, e->marks.data[i] == 0};
        }
        out->segs[out->n - 1].n++;
    }
    return NW_OK;
}

nw_status nw_template_render_vars(const nw_template *t, const json_t *messages, const json_t *vars,
                                  bool add_generation_prompt, const char *bos, const char *eos,
                                  nw_segments *out, nw_error *err)
{
    nw_arena arena = {0};
    nwt_frame top = {.parent = NULL};
    nwt_env e = {.t = t, .arena = &arena, .err = err, .frame = &top, .top = &top};

    *out = (nw_segments){.n = 0};
    if (!json_is_array(messages)) {
        return nw_fail(err, NW_E_FORMAT, "messages is not a list");
    }
    nw_buf_init(&e.text, NW_TEMPLATE_MAX_OUTPUT);
    nw_buf_init(&e.marks, NW_TEMPLATE_MAX_OUTPUT);
    nw_status st = set_vars(&e, messages, vars, add_generation_prompt, bos, eos);
    if (st == NW_OK) {
        st = nwt_exec(&e, t->body);
    }
    if (st == NW_OK) {
        st = cut(&e, out);
    }
    if (st != NW_OK) {
        nw_segments_release(out);
    }
    nw_buf_release(&e.text);
    nw_buf_release(&e.marks);
    nw_arena_release(&arena);
    return st;
}

nw_status nw_template_render(const nw_template *t, const json_t *messages,
                             bool add_generation_prompt, const char *bos, const char *eos,
                             nw_segments *out, nw_error *err)
{
    return nw_template_render_vars(t, messages, NULL, add_generation_prompt, bos, eos, out, err);
}

static const char *token_text(const nw_tokenizer *tok, int32_t id)
{
    size_t len = 0;

    return id < 0 ? NULL : nw_tokenizer_piece(tok, id, &len);
}

nw_status nw_chat_encode(const nw_tokenizer *tok, const json_t *messages,
                         bool add_generation_prompt, nw_ids *out, nw_error *err)
{
    const char *src = nw_tokenizer_chat_template(tok);
    nw_template *t = NULL;
    nw_segments segs = {.n = 0};

    if (src == NULL) {
        return nw_fail(err, NW_E_UNSUPPORTED, "%s: the model has no chat template",
                       nw_tokenizer_path(tok));
    }
    nw_status st = nw_template_parse("chat template", src, strlen(src), &t, err);
    if (st == NW_OK) {
        st = nw_template_render(t, messages, add_generation_prompt,
                                token_text(tok, nw_tokenizer_bos(tok)),
                                token_text(tok, nw_tokenizer_eos(tok)), &segs, err);
    }
    if (st == NW_OK) {
        st = nw_tokenizer_encode_segments(tok, segs.segs, segs.n, NW_TOK_BOS, out, err);
    }
    nw_segments_release(&segs);
    nw_template_free(t);
    return st;
}
