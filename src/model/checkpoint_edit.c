/* A checkpoint seen through changes that keep its function: values that pass an edit on the way, and a
 * tied head that becomes a matrix of its own. See checkpoint.h.
 * SPDX-License-Identifier: Apache-2.0 */
#include "model/arch.h"
#include "model/checkpoint_parts.h"

void nw_checkpoint_set_edit(nw_checkpoint *c, nw_ckpt_edit edit)
{
    c->edit = edit;
}

const nw_ckpt_edit *nw_checkpoint_edit(const nw_checkpoint *c)
{
    return &c->edit;
}

/* The list has room for every slot, and the head stands at its end. */
void nw_checkpoint_untie(nw_checkpoint *c)
{
    nw_ckpt_tensor *head = &c->slots[NW_ROLE_HEAD];

    if (c->config.tied) {
        *head = c->slots[NW_ROLE_EMBED];
        head->role = NW_ROLE_HEAD;
        head->name = nw_arch_tensor_name(nw_arch_get(c->config.arch), NW_ROLE_HEAD, NW_NAMING_HF);
        c->list[c->n_list++] = head;
        c->config.tied = false;
    }
}
