/* SPDX-License-Identifier: Apache-2.0 */
/* meta.loop.h - the kernels of meta-training, behind a unit's `optimizer`: `begin_optimizer` gives it a particle's
 * weights, `take_step` moves all tensors of a slab by the gradients there, `window_args` begins with a qn_meta_window.
 * `meta_window` trains every particle of a group for some steps: forward and backward pass (meta.task.h), then the
 * optimizer's step. `meta_outer` moves theta by Adam along the estimate of antithetic pairs whose epsilon stays for an
 * episode (ES-Single, arXiv 2304.11153; NRES, arXiv 2304.12180), and `meta_next` begins what ended. All numbers depend
 * on the seed and on places alone, so a run repeats its bits. */
QN_GROUP_KERNEL(meta_window, window_args, args)
{
  QN_SHARED(optimizer, shared_optimizer, 1);
  optimizer &o = shared_optimizer[0];
  float *const shared = static_cast<float *>(qn_shared_dynamic());
  const qn_meta_window &a = args.of;
  const qn_u32 thread = qn_thread(), particle = static_cast<qn_u32>(qn_block());
  const qn_meta_pair pair = a.pair[particle / 2];
  const qn_meta_group &by = a.group;
  float *const slab = a.slabs + static_cast<qn_u64>(particle) * by.floats;
  const meta_task task = task_of(episode_seed(a.seed, pair.episode));
  const float most = 2.0f * qn_log(static_cast<float>(by.width[by.layers]));
  begin_optimizer(o, a, task.seed, particle % 2 ? -1.0f : 1.0f, thread);
  if (pair.step == 0) begin_episode(by, slab, task, thread);
  float sum = 0.0f;
  bool is_lost = false;
  for (qn_u32 k = 0; k < a.steps; k++) {
    const qn_u32 step = pair.step + k;
    const float loss = train_pass(by, slab, task, step, shared, o.label, o.scratch, thread);
    is_lost = is_lost || !(loss < 4.0f * most);
    sum += loss < most ? loss : most;
    if (is_lost) {
      sum += static_cast<float>(a.steps - 1 - k) * most;
      break;
    }
    take_step(o, args, slab, step, thread);
  }
  if (thread == 0) a.loss[particle] = sum / static_cast<float>(a.steps) + (is_lost ? QN_META_LOST : 0.0f);
}

QN_FN float loss_alone(float x) { return x < QN_META_LOST ? x : x - QN_META_LOST; }

/* A block has a few weights, and all its threads draw: a Philox call gives four normals, which are four weights'. */
QN_GROUP_KERNEL(meta_outer, qn_meta_outer, a)
{
  constexpr qn_u32 MINE = QN_META_OUTER_WEIGHTS, QUADS = MINE / 4, PAIRS = META_THREADS / QUADS;
  QN_SHARED(float, epsilon, PAIRS *MINE);
  QN_SHARED(float, off, PAIRS);
  const qn_u32 thread = qn_thread(), block = static_cast<qn_u32>(qn_block()), at = block * MINE + thread;
  const qn_u32 place = thread / QUADS, quad = thread % QUADS;
  float sum = 0.0f;
  for (qn_u32 first = 0; first < a.pairs; first += PAIRS) {
    const qn_u32 k = first + place;
    if (k < a.pairs) {
      float x[4];
      normals4(episode_seed(a.seed, a.pair[k].episode), META_EPSILON, 0, block * QUADS + quad, x);
      QN_UNROLL
      for (qn_u32 j = 0; j < 4; j++) epsilon[place * MINE + 4 * quad + j] = x[j];
      const float d = loss_alone(a.loss[2 * k]) - loss_alone(a.loss[2 * k + 1]);
      if (quad == 0) off[place] = d > a.most ? a.most : d < -a.most ? -a.most : d;
    }
    qn_barrier();
    for (qn_u32 j = 0; thread < MINE && j < PAIRS && first + j < a.pairs; j++)
      sum = qn_fma(off[j], epsilon[j * MINE + thread], sum);
    qn_barrier();
  }
  if (thread >= MINE || at >= META_WEIGHTS) return;
  const float g = sum / (2.0f * a.sigma * static_cast<float>(a.pairs));
  const float m = qn_fma(0.9f, a.m[at], 0.1f * g), v = qn_fma(0.99f, a.v[at], 0.01f * g * g);
  const float t = static_cast<float>(a.step);
  const float of_m = 1.0f - qn_exp(t * qn_log(0.9f)), of_v = 1.0f - qn_exp(t * qn_log(0.99f));
  a.m[at] = m, a.v[at] = v;
  a.theta[at] -= a.lr * (m / of_m) * qn_rsqrt(v / of_v + 1e-16f);
}

/* One block; sums in a fixed order. */
QN_GROUP_KERNEL(meta_next, qn_meta_next, a)
{
  QN_SHARED(float, scratch, 32);
  float sum = 0.0f, lost = 0.0f;
  for (qn_u32 k = qn_thread(); k < a.pairs; k += META_THREADS) {
    const float one = a.loss[2 * k], other = a.loss[2 * k + 1];
    const bool is_lost = one >= QN_META_LOST || other >= QN_META_LOST;
    sum += loss_alone(one) + loss_alone(other);
    lost += is_lost ? 1.0f : 0.0f;
    qn_meta_pair pair = a.pair[k];
    pair.step += a.window;
    if (is_lost || pair.step >= pair.length) {
      qn_u32 word[4];
      pair.episode += a.pairs;
      pair.step = 0;
      words4(episode_seed(a.seed, pair.episode), META_LENGTH, 0, 0, word);
      pair.length =
          static_cast<qn_u32>(between_logs(static_cast<float>(a.shortest), static_cast<float>(a.longest), word[0]));
    }
    a.pair[k] = pair;
  }
  sum = qn_group_sum(sum, scratch);
  lost = qn_group_sum(lost, scratch);
  if (qn_thread() == 0) a.report[0] = sum / (2.0f * static_cast<float>(a.pairs)), a.report[1] = lost;
}
