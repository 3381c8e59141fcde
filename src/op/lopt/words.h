/* SPDX-License-Identifier: Apache-2.0 */
/* words.h - names that the host's code and kernels of learned optimizers share; it includes nothing. */
#ifndef QN_OP_LOPT_WORDS_H
#define QN_OP_LOPT_WORDS_H

/* How a gradient is taken: as it is; with NaN 0 and the infinities the largest numbers; within +-1000, NaN staying. */
typedef enum qn_lopt_gradient { QN_LOPT_AS_IS, QN_LOPT_NUMBERS, QN_LOPT_CLIPPED } qn_lopt_gradient;
#define QN_LOPT_CLIP 1000.0f

#endif
