# SPDX-License-Identifier: Apache-2.0
"""Puts a forked process into isolation before it runs a candidate: `enter` returns in the isolated process alone.

The process gets namespaces of its own (users, mounts, processes, network, IPC) where the kernel grants them, write
access to one folder alone (Landlock), and limits of memory, file size and open files. Above it stands the first process
of its process namespace: when that ends, the kernel ends all others. Two lines of JSON go to the descriptor `report`:
the isolation that the kernel granted, and the process's end. Sources: namespaces(7), landlock(7), prctl(2)."""

import ctypes
import glob
import json
import os
import resource
import signal
import struct

NEWNS, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REC, MS_PRIVATE = 2, 4, 8, 0x4000, 0x40000
PDEATHSIG, SUBREAPER, NO_NEW_PRIVS = 1, 36, 38
LANDLOCK_CREATE, LANDLOCK_ADD, LANDLOCK_RESTRICT = 444, 445, 446
WRITE_FILE, REFER, TRUNCATE = 1 << 1, 1 << 13, 1 << 14
WRITES = WRITE_FILE | sum(1 << bit for bit in range(4, 13))  # writing, removing and making of every kind of file
LAST_WITHOUT_NETWORK = 3  # Landlock's fourth version can deny TCP

libc = ctypes.CDLL(None, use_errno=True)


def _unshare(flags):
    return libc.unshare(flags) == 0


def _namespaces():
    """Enters as many namespaces as the kernel grants; returns their names."""
    trial = os.fork()  # some kernels (AppArmor's) grant the namespace and then no right in it: one cannot go back
    if trial == 0:
        try:
            _enter_users()
            os._exit(0)
        except OSError:
            os._exit(1)
    if os.waitpid(trial, 0)[1]:
        return []
    _enter_users()
    granted = ["users", "mounts", "processes", "ipc"]
    if _unshare(NEWNET):
        granted.append("network")
    return granted


def _enter_users():
    """OSError: not granted."""
    user, group = os.getuid(), os.getgid()
    if not _unshare(NEWUSER | NEWNS | NEWPID | NEWIPC):
        raise OSError(ctypes.get_errno(), "unshare")
    for path, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{path}", "w") as file:
            file.write(text)


def _mounts():
    """/proc of the new process namespace, and an empty /dev/shm; returns whether the latter is there."""
    libc.mount(b"none", b"/", None, ctypes.c_ulong(MS_REC | MS_PRIVATE), None)
    flags = ctypes.c_ulong(MS_NOSUID | MS_NODEV | MS_NOEXEC)
    libc.mount(b"proc", b"/proc", b"proc", flags, None)
    return libc.mount(b"tmpfs", b"/dev/shm", b"tmpfs", flags, b"size=64m") == 0


def _allow(ruleset, path, access):
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    rule = struct.pack("=Qi", access, fd)
    libc.syscall(LANDLOCK_ADD, ruleset, 1, rule, 0)
    os.close(fd)


def _landlock(folders, shm):
    """Writes only below the folders and to the process's own entries of /proc, which CUDA needs, and no TCP. Returns
    the denied kinds."""
    version = libc.syscall(LANDLOCK_CREATE, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return []
    files = WRITES | (REFER if version >= 2 else 0) | (TRUNCATE if version >= 3 else 0)
    tcp = version > LAST_WITHOUT_NETWORK
    attributes = struct.pack("=QQ", files, 3 if tcp else 0)[: 16 if tcp else 8]
    ruleset = libc.syscall(LANDLOCK_CREATE, attributes, ctypes.c_size_t(len(attributes)), 0)
    if ruleset < 0:
        return []
    for folder in folders:
        _allow(ruleset, folder, files)
    if shm:
        _allow(ruleset, "/dev/shm", files)
    _allow(ruleset, "/proc/self", files)
    devices = ["/dev/null", "/dev/zero", "/dev/full", *glob.glob("/dev/nvidia*")]
    for device in devices:
        _allow(ruleset, device, files if os.path.isdir(device) else files & (WRITE_FILE | TRUNCATE))
    denied = libc.syscall(LANDLOCK_RESTRICT, ruleset, 0) == 0
    os.close(ruleset)
    return (["files", "tcp"] if tcp else ["files"]) if denied else []


def _limits(limits):
    for name, most in limits.items():
        kind = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (most, most))


def _wait_all(program):
    """Collects children until `program` ends; returns its status."""
    while True:
        pid, status = os.wait()
        if pid == program:
            return status


def _end_children():
    """Without a process namespace nothing else ends what a program left running."""
    while True:
        with open(f"/proc/self/task/{os.getpid()}/children") as file:
            left = [int(pid) for pid in file.read().split()]
        if not left:
            return
        for pid in left:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)


def _report(fd, line):
    os.write(fd, (json.dumps(line) + "\n").encode())


def enter(config):
    """Of a process that was forked for this; its descriptors are those of the judge's message."""
    report = config["report"]
    libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    libc.prctl(SUBREAPER, 1, 0, 0, 0)  # what is left alone below stays below
    granted = _namespaces() if config["namespaces"] else []
    first = os.fork() if granted else 0
    if first:
        os.closerange(3, 1 << 16)
        os.waitpid(first, 0)
        os._exit(0)
    libc.prctl(PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    shm = granted and _mounts()
    program = os.fork()
    if program == 0:
        libc.prctl(NO_NEW_PRIVS, 1, 0, 0, 0)
        denied = _landlock([config["folder"], *filter(None, [config["caches"]])], shm)
        _limits(config["limits"])
        _report(report, {"namespaces": granted, "denied": denied})
        os.close(report)
        os.chdir(config["folder"])
        return
    for fd in config["fds"]:
        os.close(fd)
    status = _wait_all(program)
    if not granted:
        _end_children()
    _report(report, {"signal": os.WTERMSIG(status)} if os.WIFSIGNALED(status) else {"exit": os.WEXITSTATUS(status)})
    os._exit(0)
