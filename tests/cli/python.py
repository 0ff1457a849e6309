# SPDX-License-Identifier: Apache-2.0
"""The Python binding, with real processes and kills. The space is in PAWL_TEST_PLACE; PAWL_TEST_RACK is one of a rack.
With the argument 'layouts': prints the layouts of its structs, for the comparison with those of the C compiler."""
import asyncio
import ctypes
import errno
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import timeit
import unittest

import pawl
from pawl import _lib

PLACES = [os.environ[name] for name in ("PAWL_TEST_PLACE", "PAWL_TEST_RACK") if name in os.environ]
LIMIT = 60  # seconds for what takes milliseconds: the machine may be busy


def hold(place, name, lease=10):
    """Another process that holds the lock until its standard input ends."""
    code = (
        "import sys, pawl\n"
        f"with pawl.open({place!r}, lease={lease}) as p, p.lock({name!r}, timeout={LIMIT}) as g:\n"
        "    print(g.token, flush=True)\n"
        "    sys.stdin.read()\n"
    )
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    return child, int(child.stdout.readline())


def release(child):
    child.communicate("")
    return child.returncode


class Local(unittest.TestCase):
    place = PLACES[0] if PLACES else "local:"

    def setUp(self):
        self.space = pawl.open(self.place)
        self.addCleanup(self.space.close)

    def test_lock(self):
        with self.space.lock("a", timeout=LIMIT) as g:
            self.assertGreater(g.token, 0)
            self.assertTrue(g.held())
            self.assertFalse(g.shared)
            self.assertEqual(self.space.query("a").mode, "exclusive")
            self.assertRaises(pawl.Held, self.space.lock, "a", timeout=0)
        self.assertFalse(g.held())
        self.assertRaises(pawl.NotOwner, g.unlock)
        with self.space.lock(b"a", timeout=LIMIT) as later:
            self.assertGreater(later.token, g.token)

    def test_modes(self):
        with self.space.lock("b", shared=True) as one, pawl.open(self.place) as space, space.lock("b", shared=True, timeout=LIMIT) as other:
            self.assertTrue(one.shared)
            self.assertRaises(pawl.Timeout, one.convert, shared=False, timeout=0.05)
            other.unlock()
            one.convert(shared=False, timeout=LIMIT)
            self.assertFalse(one.shared)
            one.convert(shared=True)
            one.extend()

    def test_relock(self):
        """A lock that the only thread holds is not waited for."""
        with self.space.lock("twice", timeout=LIMIT):
            self.assertRaises(pawl.Deadlock, self.space.lock, "twice")
            self.assertRaises(pawl.Deadlock, self.space.lock, "twice", timeout=LIMIT)

    def test_all(self):
        with self.space.lock_all(["x", "y", "z"], timeout=LIMIT) as grants:
            self.assertEqual(len(grants), 3)
            self.assertRaises(pawl.Held, self.space.lock, "y", timeout=0)
        self.space.lock("y", timeout=0).unlock()
        self.assertRaises(pawl.Error, self.space.lock_all, ["x", "x"])

    def test_errors(self):
        for key, error in (("", pawl.Error), ("n" * 300, pawl.Error), (7, pawl.Error), (-1, TypeError), (None, TypeError), (2**64, TypeError)):
            self.assertRaises(error, self.space.lock, key)
        with self.assertRaises(pawl.Error) as caught:
            self.space.lock("")
        self.assertIn("1 to 255 bytes", caught.exception.strerror)
        self.assertRaises(ValueError, pawl.open, self.place, keys="odd")
        self.assertRaises(pawl.Error, pawl.open, "garbage://")
        with tempfile.NamedTemporaryFile() as other:
            other.write(b"no segment" * 1000)
            other.flush()
            self.assertRaises(pawl.BadSegment, pawl.open, "local:" + other.name)
        space = pawl.open(self.place)
        grant = space.lock("c")
        space.close()
        space.close()
        self.assertRaises(pawl.Error, grant.unlock)
        self.assertRaises(pawl.Error, space.lock, "c")

    def test_exception_in_block(self):
        with self.assertRaises(KeyError):
            with self.space.lock("d"):
                raise KeyError
        self.space.lock("d", timeout=0).unlock()

    def test_threads(self):
        inside, total = [0], [0]

        def work():
            for _ in range(50):
                with self.space.lock("threads", timeout=LIMIT):
                    inside[0] += 1
                    self.assertEqual(inside[0], 1)
                    total[0] += 1
                    inside[0] -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(total[0], 200)

    def test_waiting_releases_the_global_lock(self):
        child, _ = hold(self.place, "gil")
        waiter = threading.Thread(target=lambda: self.space.lock("gil", timeout=LIMIT).unlock())
        waiter.start()
        self.assertEqual(release(child), 0)  # Python runs while the thread waits
        waiter.join()

    def test_fork(self):
        def child(space, results):
            try:
                space.lock("forked", timeout=0)
            except pawl.Forked:
                with pawl.open(self.place) as own, own.lock("forked", timeout=LIMIT):
                    results.put("own session")

        context = multiprocessing.get_context("fork")
        results = context.Queue()
        process = context.Process(target=child, args=(self.space, results))
        process.start()
        self.assertEqual(results.get(timeout=LIMIT), "own session")
        process.join()

    def test_kill(self):
        child, token = hold(self.place, "killed", lease=3)
        self.assertRaises(pawl.Held, self.space.lock, "killed", timeout=0)
        child.send_signal(signal.SIGKILL)
        child.wait()
        with self.space.lock("killed", timeout=LIMIT) as g:
            self.assertGreater(g.token, token)
        child.stdin.close()
        child.stdout.close()

    def test_asyncio(self):
        async def one(name, timeout=LIMIT):
            async with self.space.lock_async(name, timeout=timeout) as g:
                await asyncio.sleep(0)
                return g.token

        async def run():
            tokens = await asyncio.gather(*[one("async") for _ in range(20)])
            self.assertEqual(len(set(tokens)), 20)
            held = await self.space.lock_async("held")
            with self.assertRaises(pawl.Timeout):
                await one("held", timeout=0.05)
            task = asyncio.create_task(one("held"))
            await asyncio.sleep(0.05)
            task.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await task
            held.unlock()
            await one("held")

        asyncio.run(run())
        asyncio.run(run())  # in another event loop


@unittest.skipUnless(len(PLACES) > 1, "without a rack")
class Rack(Local):
    place = PLACES[-1] if PLACES else "local:"


@unittest.skipUnless(PLACES and PLACES[0].startswith("local:"), "shared memory alone")
class Lost(unittest.TestCase):
    def test_lost(self):
        """A process that is stopped for longer than its lease learns that its lock is lost."""
        code = (
            "import sys, pawl\n"
            f"with pawl.open({PLACES[0]!r}, lease=1) as p:\n"
            "    g = p.lock('lost')\n"
            "    print('holds', flush=True)\n"
            "    sys.stdin.readline()\n"
            "    try:\n"
            "        g.check()\n"
            "    except pawl.Lost as e:\n"
            "        print('lost', flush=True)\n"
        )
        child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.assertEqual(child.stdout.readline(), "holds\n")
        child.send_signal(signal.SIGSTOP)
        with pawl.open(PLACES[0]) as space, space.lock("lost", timeout=LIMIT):
            child.send_signal(signal.SIGCONT)
            self.assertEqual(child.communicate("\n")[0], "lost\n")


    def test_semaphore(self):
        with pawl.open(PLACES[0]) as space, pawl.open(PLACES[0]) as other:
            with space.semaphore("slots", 2) as one, other.semaphore("slots", 2) as two:
                self.assertTrue(one.shared and two.shared and one.token and two.token)
                self.assertRaises(pawl.Held, other.semaphore, "slots", 2, timeout=0)
                self.assertRaises(pawl.OtherLimit, other.semaphore, "slots", 3, timeout=LIMIT)
            other.semaphore("slots", 3).unlock()
            self.assertRaises(ValueError, other.semaphore, "slots", 0)
            self.assertRaises(pawl.Error, other.semaphore, "slots", 1 << 20)

    def test_value(self):
        with pawl.open(PLACES[0]) as space, pawl.open(PLACES[0]) as other:
            with space.lock("valued") as one:
                self.assertIsNone(one.value)
                one.value = b"leader: a\0b"
                self.assertEqual(one.value, b"leader: a\0b")
                with self.assertRaises(pawl.Error) as too_long:
                    one.value = b"x" * 65
                self.assertEqual(too_long.exception.errno, errno.EMSGSIZE)
            with other.lock("valued", shared=True) as two:
                self.assertEqual(two.value, b"leader: a\0b")
                with self.assertRaises(pawl.Error) as not_exclusive:
                    two.value = b"no"
                self.assertEqual(not_exclusive.exception.errno, errno.EINVAL)
            with other.lock("valued") as two:
                two.value = None
                self.assertIsNone(two.value)
            with self.assertRaises(pawl.NotOwner):
                two.value = b"late"

    def test_unlock_all(self):
        with pawl.open(PLACES[0]) as space:
            grants = space.lock_all(["all-a", "all-b", "all-c"])
            grants[1].unlock()
            grants.unlock()
            grants.unlock()
            self.assertFalse(any(g.held() for g in grants))
            space.lock_all(["all-a", "all-b", "all-c"], timeout=0).unlock()

    def test_wanted(self):
        """A holder is told that others wait: by the callback, which gives way, and in asyncio."""
        with pawl.open(PLACES[0]) as space, pawl.open(PLACES[0]) as other:
            space.on_wanted(lambda grant: grant.unlock())
            grant = space.lock("wanted")
            grant.watch()
            other.lock("wanted", timeout=LIMIT).unlock()
            self.assertRaises(pawl.NotOwner, grant.watch)
            space.on_wanted(None)

            async def run():
                held = await space.lock_async("wanted", timeout=LIMIT)
                next_one = asyncio.ensure_future(other.lock_async("wanted", timeout=LIMIT)._acquire())
                await asyncio.wait_for(held.wanted_async(), LIMIT)
                held.unlock()
                (await next_one).unlock()

            asyncio.run(run())

    def test_event(self):
        """A session that an operator breaks is told so: by the callback, in asyncio, and by its grants."""
        told, event = [], threading.Event()

        def on_lost(why):
            told.append(why)
            event.set()

        with pawl.open(PLACES[0], lease=1) as space:
            grant = space.lock("broken")
            self.assertEqual(grant.why(), pawl.Why.HELD)
            space.on_lost(on_lost)

            async def run():
                lost = asyncio.ensure_future(space.lost_async())
                command = [os.environ["PAWL"], "break", "broken", "--yes", "--space", PLACES[0]]
                self.assertEqual((await asyncio.create_subprocess_exec(*command)).returncode or 0, 0)
                return await asyncio.wait_for(lost, LIMIT)

            self.assertEqual(asyncio.run(run()), pawl.Why.BROKEN)
            self.assertTrue(event.wait(LIMIT))
            self.assertEqual(told, [pawl.Why.BROKEN])
            self.assertEqual(grant.why(), pawl.Why.BROKEN)
            self.assertIn("operator", str(grant.why()))
            self.assertRaises(pawl.Lost, space.on_lost, on_lost)
            self.assertRaises(pawl.Lost, space.lock, "other")


@unittest.skipUnless(PLACES, "without a space")
class Cost(unittest.TestCase):
    def test_cost(self):
        """No bound here: a benchmark's business. But a figure."""
        with pawl.open(PLACES[0]) as space:

            def once():
                with space.lock("cost"):
                    pass

            runs = 20000
            best = min(timeit.repeat(once, number=runs, repeat=5, timer=time.process_time)) / runs
            print(f"a with block: {best * 1e6:.2f} us of processor time", file=sys.stderr)


def print_layouts():
    for struct in _lib.STRUCTS:
        print(f"pawl_{struct.__name__}", ctypes.sizeof(struct))
        for name, *_ in struct._fields_:
            field = getattr(struct, name)
            print(f"pawl_{struct.__name__}.{name}", field.offset, field.size)


if __name__ == "__main__":
    if sys.argv[1:] == ["layouts"]:
        print_layouts()
    else:
        unittest.main(verbosity=2)
