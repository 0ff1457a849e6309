"""Servers that benchmarks compare with, and pawl's own, on loopback ports of their own: started and stopped by the benchmark.

A service that cannot be started raises Missing, with the name of the Debian package or the reason.
"""
import glob
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
START_S = 60  # a busy machine
LAB_SWITCH = "10.77.1.254"  # the address of a lab's switch


class Missing(Exception):
    """Why a service is left out."""


def program(name, package):
    found = shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")
    if not found:
        raise Missing(f"{name} is missing (Debian: {package})")
    return found


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def await_port(port, process, what):
    for _ in range(START_S * 20):
        if process.poll() is not None:
            raise Missing(f"{what} ended with status {process.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return
        except OSError:
            time.sleep(0.05)
    raise Missing(f"{what} does not answer at port {port}")


def cpu_seconds(pids):
    """Processor time of processes, of their threads and of children that they have waited for."""
    ticks = 0
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as f:
                ticks += sum(int(word) for word in f.read().rsplit(")", 1)[1].split()[11:15])
        except OSError:
            pass
    return ticks / os.sysconf("SC_CLK_TCK")


def family(pid):
    """A process and its descendants."""
    found = [pid]
    for path in glob.glob(f"/proc/{pid}/task/*/children"):
        try:
            with open(path, encoding="ascii") as f:
                for child in f.read().split():
                    found += family(int(child))
        except OSError:
            pass
    return found


class Services:
    """All that a benchmark has started. As a context it ends them, and removes their files."""

    def __init__(self, build):
        self.build = os.path.abspath(build)
        self.pawl = os.path.join(self.build, "pawl")
        self.folder = tempfile.mkdtemp(prefix="pawl-bench.", dir="/dev/shm")
        self.disk = tempfile.mkdtemp(prefix="pawl-bench.", dir=os.environ.get("TMPDIR", "/var/tmp"))
        self.started = []
        self.labs = []
        self.spaces = []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in reversed(self.started):
            self.stop(process)
        for lab in self.labs:
            subprocess.run([self.pawl, "lab", "down", "--name", lab], check=False, stdout=subprocess.DEVNULL)
        for space in self.spaces:
            for path in glob.glob(f"/dev/shm/pawl.{os.getuid()}.net.{space}.*"):
                os.unlink(path)
        for folder in (self.folder, self.disk):
            shutil.rmtree(folder, ignore_errors=True)

    def start(self, words, name, **more):
        log = open(os.path.join(self.folder, name + ".log"), "ab")
        process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True, **more)
        log.close()
        self.started.append(process)
        return process

    @staticmethod
    def stop(process):
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def said(self, name, text, process):
        """Waits until the service has said that."""
        path = os.path.join(self.folder, name + ".log")
        for _ in range(START_S * 20):
            with open(path, encoding="utf-8", errors="replace") as f:
                all_of_it = f.read()
            if text in all_of_it:
                return
            if process.poll() is not None:
                break
            time.sleep(0.05)
        raise Missing(f"{name} does not start: {all_of_it.strip()[-300:]}")

    # ---- pawl ----

    def rack(self, name, design, locks, lease=10, hosts=64, sessions=128):
        """`pawl serve` on loopback, a rack or a memory node: its place."""
        port = free_port()
        space = f"{name}{os.getpid()}"
        node = design in ("word", "shiftlock", "shiftlock64", "alock", "citron")
        state = ["--sessions", str(hosts * 8)] if node else ["--hosts", str(hosts), "--sessions", str(sessions)]
        self.spaces.append(space)
        process = self.start([self.pawl, "serve", "--space", space, "--design", design, "--keys", "dense", "--locks", str(locks),
                              "--listen", f"127.0.0.1:{port}", "--lease", str(lease), "--fresh",
                              "--state", os.path.join(self.folder, name + ".state")] + state, name)
        self.said(name, " at ", process)
        return f"pawl://127.0.0.1:{port}/{space}", process

    def lab(self, name, design, locks, lease=10, hosts=4, sessions=128):
        """A lab whose switch is in the kernel and in the path, as a rack's own switch is: the place, the hosts' namespaces, the processes."""
        if os.getuid():
            raise Missing("network namespaces need root")
        program("ip", "iproute2")
        doctor = subprocess.run([self.pawl, "doctor"], capture_output=True, text=True, check=False).stdout
        if not any(line.startswith("ok") and "BPF and XDP" in line for line in doctor.splitlines()):
            raise Missing("no programs for the kernel here: see pawl doctor")
        lab, space = f"{name}{os.getpid()}", f"{name}{os.getpid()}"
        done = subprocess.run([self.pawl, "lab", "up", "--name", lab, "--hosts", str(hosts), "--switch", "in-path"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise Missing(f"no lab: {done.stderr.strip()}")
        self.labs.append(lab)
        self.spaces.append(space)
        status = json.loads(subprocess.run([self.pawl, "lab", "status", "--name", lab, "--json"], capture_output=True, text=True,
                                           check=True).stdout)
        inside = [self.pawl, "lab", "exec", "switch", "--name", lab, "--", self.pawl]
        serve = self.start(inside + ["serve", "--space", space, "--design", design, "--own", "0", "--keys", "dense",
                                     "--locks", str(locks), "--listen", f"{LAB_SWITCH}:7070", "--insecure", "--lease", str(lease),
                                     "--fresh", "--state", os.path.join(self.folder, name + ".state"),
                                     "--hosts", str(hosts + 4), "--sessions", str(sessions)], name + "-serve")
        self.said(name + "-serve", " at ", serve)
        ports = ",".join(f"p{host}" for host in range(1, hosts + 1))
        switch = self.start(inside + ["switch", "--dev", ports, "--loop", "loop0,loop1", "--join", f"{LAB_SWITCH}:7070", "--space", space,
                                      "--listen", f"{LAB_SWITCH}:4747", "--fresh"], name + "-switch")
        self.said(name + "-switch", "is ready", switch)
        spaces = [f"/run/netns/pawl-{status['id']}-r1-h{host}" for host in range(1, hosts + 1)]
        return f"pawl://{LAB_SWITCH}:7070/{space}", spaces, [serve, switch]

    # ---- others ----

    def redis(self):
        port = free_port()
        process = self.start([program("redis-server", "redis-server"), "--port", str(port), "--bind", "127.0.0.1", "--save", "",
                              "--appendonly", "no", "--dir", self.folder], "redis")
        await_port(port, process, "Redis")
        return port, process

    def memcached(self):
        port = free_port()
        user = ["-u", "nobody"] if os.getuid() == 0 else []
        process = self.start([program("memcached", "memcached"), "-l", "127.0.0.1", "-p", str(port), "-U", "0"] + user, "memcached")
        await_port(port, process, "memcached")
        return port, process

    def etcd(self):
        port, peer = free_port(), free_port()
        client, other = f"http://127.0.0.1:{port}", f"http://127.0.0.1:{peer}"
        process = self.start([program("etcd", "etcd-server"), "--data-dir", os.path.join(self.disk, "etcd"), "--listen-client-urls", client,
                              "--advertise-client-urls", client, "--listen-peer-urls", other, "--initial-advertise-peer-urls", other,
                              "--initial-cluster", f"default={other}"], "etcd")
        await_port(port, process, "etcd")
        return port, process

    def postgres(self):
        found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb"))
        if not found:
            raise Missing("PostgreSQL is missing (Debian: postgresql)")
        folder, port = os.path.join(self.disk, "postgres"), free_port()
        as_user = []
        if os.getuid() == 0:  # PostgreSQL refuses to be root
            as_user = [program("runuser", "util-linux"), "-u", "postgres", "--"]
            os.chmod(self.disk, 0o755)
            os.mkdir(folder)
            shutil.chown(folder, "postgres")
        done = subprocess.run(as_user + [found[-1], "-D", folder, "-A", "trust", "-U", "postgres", "--no-sync"], capture_output=True,
                              text=True, check=False, cwd="/")
        if done.returncode:
            raise Missing(f"initdb: {done.stderr.strip()[-200:]}")
        process = self.start(as_user + [os.path.join(os.path.dirname(found[-1]), "postgres"), "-D", folder, "-p", str(port), "-h", "127.0.0.1",
                                        "-k", "", "-c", "max_connections=200"], "postgres", cwd="/")
        await_port(port, process, "PostgreSQL")
        return port, process

    def zookeeper(self):
        jar = "/usr/share/java/zookeeper.jar"
        if not os.path.exists(jar):
            raise Missing("ZooKeeper is missing (Debian: zookeeper)")
        folder, port = os.path.join(self.disk, "zookeeper"), free_port()
        config = os.path.join(self.folder, "zoo.cfg")
        with open(config, "w", encoding="utf-8") as out:
            out.write(f"tickTime=2000\ndataDir={folder}\nclientPort={port}\nclientPortAddress=127.0.0.1\nmaxClientCnxns=0\n"
                      "admin.enableServer=false\nmaxSessionTimeout=600000\n")
        process = self.start([program("java", "default-jre-headless"), "-cp", f"{self.folder}:{jar}",
                              "org.apache.zookeeper.server.quorum.QuorumPeerMain", config], "zookeeper")
        await_port(port, process, "ZooKeeper")
        return port, process
