/* SPDX-License-Identifier: Apache-2.0 */
/* workbench_judge.c - when the judge asks a second process for a word about the speed, and what becomes of the word
 * that the second one does not say: verdicts as they were recorded, so that the machine's noise decides nothing. */
#include "test.h"
#include "workbench/judge_inner.h"
#include <string.h>

static qn_judge_verdict recorded(qn_judge_word word, double ratio, double low, double high)
{
  return (qn_judge_verdict){.word = word, .timed = true, .speedup = {.ratio = ratio, .low = low, .high = high}};
}

static void who_is_asked_again(void)
{
  static const struct {
    qn_judge_word word;
    double low, high;
    bool needs;
  } cases[] = {
      {QN_JUDGED_FASTER, 1.04, 1.09, true}, {QN_JUDGED_FASTER, 1.2, 1.9, true},   {QN_JUDGED_FASTER, 1.25, 1.4, false},
      {QN_JUDGED_FASTER, 3.8, 4.1, false},  {QN_JUDGED_SLOWER, 0.91, 0.96, true}, {QN_JUDGED_SLOWER, 0.5, 0.81, true},
      {QN_JUDGED_SLOWER, 0.7, 0.8, false},  {QN_JUDGED_SLOWER, 0.2, 0.3, false},  {QN_JUDGED_SAME, 0.99, 1.01, false},
      {QN_JUDGED_UNCLEAR, 0.9, 1.2, false}, {QN_JUDGED_WRONG, 1.04, 1.09, false}};
  for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
    const qn_judge_verdict v = recorded(cases[k].word, (cases[k].low + cases[k].high) / 2, cases[k].low, cases[k].high);
    check(qn_judge_needs_second(&v) == cases[k].needs, "%s, %g to %g times the baseline: %s second process",
          qn_judge_word_text(v.word), cases[k].low, cases[k].high, cases[k].needs ? "a" : "no");
  }
}

static void what_the_second_says(void)
{
  for (qn_judge_word first = QN_JUDGED_FASTER; first <= QN_JUDGED_SLOWER; first += QN_JUDGED_SLOWER)
    for (qn_judge_word word = QN_JUDGED_FASTER; word <= QN_JUDGED_UNCLEAR; word++) {
      const double ratio = first == QN_JUDGED_FASTER ? 1.07 : 0.93;
      qn_judge_verdict v = recorded(first, ratio, ratio - 0.02, ratio + 0.02);
      const qn_judge_verdict second = recorded(word, 0.98, 0.96, 1.0);
      qn_judge_agree(&v, &second);
      check(v.word == (word == first ? first : QN_JUDGED_UNCLEAR) && v.n_notes == (word != first) &&
                v.speedup.ratio == ratio && (word == first || strstr(v.note[0], "0.98 times the baseline")),
            "%s, and a second process is %s: %s", qn_judge_word_text(first), qn_judge_word_text(word),
            qn_judge_word_text(v.word));
    }
}

int main(void)
{
  who_is_asked_again();
  what_the_second_says();
  return test_end();
}
