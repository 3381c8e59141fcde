/* SPDX-License-Identifier: Apache-2.0 */
/* words.c - which of the dialects' words a kernel's text needs. */
#include "kernel/kernel.h"
#include <string.h>

void qn_words_include(const qn_kernel *kernel, const qn_special *special, qn_text *text)
{
  (void)kernel, (void)special;
  qn_text_add(text, "#include \"kernel/words/plain.h\"\n");
}

static bool begins(const qn_tokens *tokens, size_t k, const char *prefix)
{
  return tokens->token[k].kind == QN_TOKEN_WORD && tokens->token[k].length >= strlen(prefix) &&
         !memcmp(tokens->text + tokens->token[k].at, prefix, strlen(prefix));
}

bool qn_words_need_group(const qn_kernel *kernel)
{
  static const char *const prefixes[] = {"threadgroup_barrier", "simdgroup_", "simd_", "quad_", "__sync",  "__shfl",
                                         "__shared__",          "__ballot",   "__any", "__all", "__match", "__reduce",
                                         "__activemask"};
  for (int which = 0; which < QN_KERNEL_TEXTS; which++)
    for (size_t k = 0; k < kernel->tokens[which].n; k++) {
      if (qn_token_is(&kernel->tokens[which], k, "threadgroup")) return true;
      for (size_t j = 0; j < sizeof prefixes / sizeof *prefixes; j++)
        if (begins(&kernel->tokens[which], k, prefixes[j])) return true;
    }
  return false;
}
