# SPDX-License-Identifier: Apache-2.0
"""The namespace of this package's torch ops. A copy of the package that is loaded beside another needs one of its own,
and has another file in the place of this one."""

NAMESPACE = "quern"
