/* SPDX-License-Identifier: Apache-2.0 */
/* rewrite.c - what macros cannot carry. */
#include "kernel/kernel.h"
#include <string.h>

qn_status qn_rewrite(qn_dialect dialect, const qn_tokens *tokens, bool header, qn_text *text)
{
  (void)dialect, (void)header;
  qn_text_add_bytes(text, tokens->text, strlen(tokens->text));
  return QN_OK;
}
