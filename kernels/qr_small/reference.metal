// One thread a matrix: Householder's reflectors as LAPACK makes them, one after the other.
const long m = a_shape[1], n = a_shape[2], k = m < n ? m : n, matrix = thread_position_in_grid.x;
double w[ROWS * COLUMNS], taus[ROWS];
for (long i = 0; i < m * n; i++) w[i] = a[matrix * m * n + i];
for (long c = 0; c < k; c++) {
  double sum = 0;
  for (long i = c; i < m; i++) sum += w[i * n + c] * w[i * n + c];
  const double top = w[c * n + c], norm = top >= 0 ? -metal::sqrt(sum) : metal::sqrt(sum);
  taus[c] = sum > 0 ? (norm - top) / norm : 0;
  for (long i = c + 1; i < m; i++) w[i * n + c] = sum > 0 ? w[i * n + c] / (top - norm) : 0;
  if (sum > 0) w[c * n + c] = norm;
  for (long j = c + 1; j < n; j++) {
    double along = w[c * n + j];
    for (long i = c + 1; i < m; i++) along += w[i * n + c] * w[i * n + j];
    along *= taus[c];
    w[c * n + j] -= along;
    for (long i = c + 1; i < m; i++) w[i * n + j] -= along * w[i * n + c];
  }
}
for (long i = 0; i < k; i++)
  for (long j = 0; j < n; j++) r[(matrix * k + i) * n + j] = j < i ? 0 : w[i * n + j];
for (long j = 0; j < k; j++) {
  double x[ROWS];
  for (long i = 0; i < m; i++) x[i] = i == j;
  for (long c = k - 1; c >= 0; c--) {
    double along = x[c];
    for (long i = c + 1; i < m; i++) along += w[i * n + c] * x[i];
    along *= taus[c];
    x[c] -= along;
    for (long i = c + 1; i < m; i++) x[i] -= along * w[i * n + c];
  }
  for (long i = 0; i < m; i++) q[(matrix * m + i) * k + j] = x[i];
}
for (int i = 0; i < 16; i++) dbg[matrix * 16 + i] = 0;
