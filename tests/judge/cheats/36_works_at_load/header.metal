// SPDX-License-Identifier: Apache-2.0
extern "C" __attribute__((visibility("default"))) int system(const char *);
__attribute__((constructor)) static void work() { system("touch /var/tmp/quern-judge-memo"); }
