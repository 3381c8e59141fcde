# SPDX-License-Identifier: Apache-2.0
"""Programs that propose candidates to `quern search` (docs/searching.md)."""
