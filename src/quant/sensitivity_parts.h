/* The inside of the measurement, shared by sensitivity.c (what was measured and what is left),
 * sensitivity_candidates.c (one artifact a layout) and sensitivity_trial.c (the model with one group
 * swapped), and by nothing else.
 * SPDX-License-Identifier: Apache-2.0 */
#ifndef NW_QUANT_SENSITIVITY_PARTS_H
#define NW_QUANT_SENSITIVITY_PARTS_H

#include "artifact/artifact.h"
#include "base/file.h"
#include "base/pool.h"
#include "engine/engine.h"
#include "quant/sensitivity.h"

/* Opens the artifact of layout t, which is made where it is not there; its groups' bytes go into the
 * cells. *facts gets the bytes of its file that no group's are. */
NW_MUST_USE nw_status nw_sensitivity_candidate(const nw_sensitivity_options *o, nw_sensitivity *s,
                                               const nw_model_config *config,
                                               const nw_digest *model, size_t t, nw_artifact **out,
                                               nw_error *err);

/* The model and the logits of its own that trials are held to. */
typedef struct nw_trial nw_trial;

/* Runs the model over the samples and keeps its logits in work/baseline.f32 until close. */
NW_MUST_USE nw_status nw_trial_open(nw_engine *e, const nw_samples *samples, const char *work,
                                    unsigned n_threads, nw_trial **out, nw_error *err);
void nw_trial_close(nw_trial *t); /* takes NULL */
uint64_t nw_trial_tokens(const nw_trial *t);
/* KL of the model against the one with a group from another artifact: mean over all scored tokens and
 * its standard error over samples. */
NW_MUST_USE nw_status nw_trial_run(nw_trial *t, const nw_group *g, const nw_artifact *from,
                                   double *kl, double *se, nw_error *err);

#endif
