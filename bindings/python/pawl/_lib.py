# SPDX-License-Identifier: Apache-2.0
"""The calls and structs of pawl.h. tests/cli/python compares the layouts with those of the C compiler."""
import ctypes
import ctypes.util
import os
from ctypes import CFUNCTYPE, POINTER, Structure, c_char_p, c_int, c_size_t, c_uint, c_uint16, c_uint32, c_uint64, c_void_p

NEVER = 2**64 - 1  # as a deadline: none
TRY = 1  # as a deadline: do not wait
SHARED, EXCLUSIVE = 1, 2
OP_LOCK, OP_UNLOCK, OP_CONVERT, OP_RESHAPE = 1, 2, 3, 4
OP_LOST, OP_WANTED = 7, 8  # of completions: the session was lost; others wait for a lock that is watched
ALL_MAX = 64
VALUE_MAX = 64
END = 2**64 - 1

EHELD, ELOST, EUNKNOWN, ENOTOWNER, ENOTSUP, EFORKED, ESEGMENT, ELIMIT, ELIMITS, ENOVALUE = range(1001, 1011)

NO_CREATE, MUST_CREATE = 1, 2
KEYS = {None: 0, "named": 1, "sparse": 2, "dense": 3}


class options(Structure):
    _fields_ = [
        ("design", c_char_p),
        ("keys", c_int),
        ("capacity", c_uint64),
        ("lease_ns", c_uint64),
        ("sessions", c_uint32),
        ("holds", c_uint32),
        ("permissions", c_uint32),
        ("flags", c_uint32),
        ("unit_bytes", c_uint64),
        ("range_units", c_uint64),
        ("range_max", c_uint64),
        ("tenant", c_uint16),
        ("priority", c_uint16),
        ("open_ns", c_uint64),
        ("key", c_char_p),
        ("reserved", c_uint64 * 3),
    ]


class key(Structure):
    _fields_ = [("name", c_char_p), ("id", c_uint64)]


class grant(Structure):
    _fields_ = [
        ("token", c_uint64),
        ("expiry_ns", c_uint64),
        ("mode", c_uint32),
        ("hold", c_uint32),
        ("index", c_uint64),
        ("serial", c_uint64),
        ("start", c_uint64),
        ("end", c_uint64),
    ]


class want(Structure):
    _fields_ = [("key", key), ("mode", c_int), ("reserved", c_uint32), ("start", c_uint64), ("end", c_uint64)]


class state(Structure):
    _fields_ = [
        ("mode", c_uint32),
        ("holders", c_uint32),
        ("waiters", c_uint32),
        ("reserved", c_uint32),
        ("token", c_uint64),
        ("reserved2", c_uint64 * 2),
    ]


class request(Structure):
    _fields_ = [
        ("op", c_int),
        ("mode", c_int),
        ("key", key),
        ("grant", grant),
        ("deadline_ns", c_uint64),
        ("user", c_void_p),
        ("start", c_uint64),
        ("end", c_uint64),
        ("call", c_void_p),
        ("limit", c_uint64),
        ("more", c_uint64),
        ("reserved", c_uint64 * 1),
    ]


class completion(Structure):
    _fields_ = [
        ("id", c_uint64),
        ("result", c_int),
        ("op", c_uint32),
        ("grant", grant),
        ("user", c_void_p),
        ("why", c_uint32),
        ("reserved", c_uint32 * 3),
    ]


LOST = CFUNCTYPE(None, c_void_p, c_int)  # the callback of pawl_on_lost
WANTED = CFUNCTYPE(None, c_void_p, POINTER(grant))  # that of pawl_on_wanted

STRUCTS = [options, key, grant, want, state, request, completion]

# Arguments of each call. The result is an int unless it is said here.
CALLS = {
    "pawl_open": [c_char_p, POINTER(options), POINTER(c_void_p)],
    "pawl_close": [c_void_p],
    "pawl_lock": [c_void_p, key, c_int, POINTER(grant)],
    "pawl_trylock": [c_void_p, key, c_int, POINTER(grant)],
    "pawl_timedlock": [c_void_p, key, c_int, c_uint64, POINTER(grant)],
    "pawl_lock_range": [c_void_p, key, c_uint64, c_uint64, c_int, c_uint64, POINTER(grant)],
    "pawl_semaphore": [c_void_p, key, c_uint32, c_uint64, POINTER(grant)],
    "pawl_unlock": [c_void_p, POINTER(grant)],
    "pawl_unlock_all": [c_void_p, POINTER(grant), c_uint],
    "pawl_set_value": [c_void_p, POINTER(grant), c_char_p, c_size_t],
    "pawl_get_value": [c_void_p, POINTER(grant), c_char_p, POINTER(c_size_t)],
    "pawl_reshape": [c_void_p, POINTER(grant), c_uint64, c_uint64, c_uint64],
    "pawl_split": [c_void_p, POINTER(grant), c_uint64, POINTER(grant)],
    "pawl_lock_all": [c_void_p, POINTER(want), c_uint, c_uint64, POINTER(grant)],
    "pawl_convert": [c_void_p, POINTER(grant), c_int, c_uint64],
    "pawl_extend": [c_void_p, POINTER(grant)],
    "pawl_check": [c_void_p, POINTER(grant)],
    "pawl_why": [c_void_p, POINTER(grant)],
    "pawl_on_lost": [c_void_p, LOST, c_void_p],
    "pawl_strwhy": [c_int],
    "pawl_watch": [c_void_p, POINTER(grant)],
    "pawl_on_wanted": [c_void_p, WANTED, c_void_p],
    "pawl_query": [c_void_p, key, POINTER(state)],
    "pawl_submit": [c_void_p, POINTER(request), POINTER(c_uint64)],
    "pawl_reap": [c_void_p, POINTER(completion), c_uint, c_uint64],
    "pawl_cancel": [c_void_p, c_uint64],
    "pawl_fd": [c_void_p],
    "pawl_now": [],
    "pawl_version": [],
    "pawl_strerror": [c_int],
    "pawl_explain": [],
}
RESULTS = {"pawl_now": c_uint64, "pawl_version": c_uint32, "pawl_strerror": c_char_p, "pawl_explain": c_char_p, "pawl_strwhy": c_char_p}


def _load() -> ctypes.CDLL:
    path = os.environ.get("PAWL_LIBRARY") or ctypes.util.find_library("pawl") or "libpawl.so.0"
    try:
        lib = ctypes.CDLL(path)
    except OSError as e:
        raise ImportError(f"cannot load libpawl ({e}): install it, or name its file in PAWL_LIBRARY") from e
    for name, arguments in CALLS.items():
        call = getattr(lib, name)
        call.argtypes = arguments
        call.restype = RESULTS.get(name, c_int)
    return lib


lib = _load()

