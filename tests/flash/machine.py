"""Another machine, as far as ssh can tell: this one's root under an overlay, with an OpenSSH server of its own on
a port of the loopback. What is done there stays in a folder in memory that is thrown away.
Its mounts are this process's own: however the process ends, nobody finds the machine's /dev under a test's folder.
"""

import contextlib
import ctypes
import glob
import os
import shutil
import socket
import subprocess
import sys
import time

CLONE_NEWNS = 0x20000  # linux/sched.h: mounts of one's own
SERVER = "/usr/sbin/sshd"
USER = "sshd:x:974:65534::/run/sshd:/usr/sbin/nologin\n"


def why_not(source):
    """Why no such machine can be made here, or None."""
    if os.getuid() != 0:
        return "root"
    if not shutil.which("ssh") or not shutil.which("ssh-keygen"):
        return "the ssh client"
    if not os.path.exists(SERVER) and not packages(source):
        return "an ssh server (cmake/setup/setup --for boards fetches one)"
    return None


def packages(source):
    return glob.glob(os.path.join(source, "build/deps/ssh/*.deb"))


def own_mounts():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.unshare(CLONE_NEWNS):
        raise OSError(ctypes.get_errno(), "no mounts of one's own")
    run("mount", "--make-rprivate", "/")


class Machine:
    """Reached as "root@board" when tools is before /usr/bin in PATH, and from nowhere else."""

    def __init__(self, folder, source, shared, size="64m"):
        self.folder, self.source, self.shared, self.size = folder, source, shared, size
        self.root = os.path.join(folder, "memory/root")
        self.tools = os.path.join(folder, "tools")
        self.server = None

    def path(self, name):
        return self.root + name

    def __enter__(self):
        try:
            self.mount()
            self.configure()
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        subprocess.run(["umount", "-R", os.path.join(self.folder, "memory")], capture_output=True)

    def mount(self):
        own_mounts()
        memory = os.path.join(self.folder, "memory")
        os.makedirs(memory)
        os.makedirs(self.tools)
        run("mount", "-t", "tmpfs", "-o", f"size={self.size}", "tmpfs", memory)
        for part in ("upper", "work", "root"):
            os.mkdir(os.path.join(memory, part))
        run("mount", "-t", "overlay", "overlay", "-o",
            f"lowerdir=/,upperdir={memory}/upper,workdir={memory}/work", self.root)
        for shared in ("/dev", "/proc", *self.shared):
            os.makedirs(self.path(shared), exist_ok=True)
            run("mount", "--bind", shared, self.path(shared))

    def configure(self):
        if not os.path.exists(self.path(SERVER)):
            for package in packages(self.source):
                content = subprocess.run(["dpkg-deb", "--fsys-tarfile", package], check=True, capture_output=True)
                # "lib" is a link there, which dpkg -x would replace.
                subprocess.run(["tar", "-x", "--keep-directory-symlink", "-C", self.root], check=True,
                               input=content.stdout)
        with open(self.path("/etc/passwd")) as file:
            known = "\nsshd:" in file.read()
        if not known:
            with open(self.path("/etc/passwd"), "a") as file:
                file.write(USER)
        os.makedirs(self.path("/run/sshd"), exist_ok=True)
        for name in ("host", "user", "stranger"):
            run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", os.path.join(self.folder, name))
        for name in ("host", "user.pub"):
            shutil.copy(os.path.join(self.folder, name), self.path("/etc/" + name))
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        with open(self.path("/etc/sshd_test"), "w") as file:
            file.write(f"Port {self.port}\nListenAddress 127.0.0.1\nHostKey /etc/host\nPidFile none\nUsePAM no\n"
                       "AuthorizedKeysFile /etc/user.pub\nStrictModes no\nPasswordAuthentication no\n"
                       f"KbdInteractiveAuthentication no\nSetEnv PATH={':'.join(self.shared)}:{os.environ['PATH']}\n")
        self.use_key("user")

    @contextlib.contextmanager
    def program(self, name, line):
        """A script in place of a program of the machine."""
        path = os.path.join(self.path("/usr/local/bin"), name)
        with open(path, "w") as file:
            file.write(f"#!/bin/sh\n{line}\n")
        os.chmod(path, 0o755)
        try:
            yield
        finally:
            os.unlink(path)

    def use_key(self, name):
        """What the client shows: "user", or "stranger", whom the machine does not know."""
        with open(os.path.join(self.folder, "host.pub")) as file:
            host = " ".join(file.read().split()[:2])
        with open(os.path.join(self.folder, "known"), "w") as file:
            file.write(f"[127.0.0.1]:{self.port} {host}\n")
        with open(os.path.join(self.folder, "config"), "w") as file:
            file.write(f"Host board\n  HostName 127.0.0.1\n  Port {self.port}\n"
                       f"Host *\n  IdentityFile {self.folder}/{name}\n  IdentitiesOnly yes\n  IdentityAgent none\n"
                       f"  UserKnownHostsFile {self.folder}/known\n  StrictHostKeyChecking yes\n")
        with open(os.path.join(self.tools, "ssh"), "w") as file:
            file.write(f'#!/bin/sh\nexec {shutil.which("ssh")} -F {self.folder}/config "$@"\n')
        os.chmod(os.path.join(self.tools, "ssh"), 0o755)

    def start(self):
        with open(os.path.join(self.folder, "sshd.log"), "ab") as log:
            self.server = subprocess.Popen(["setpriv", "--pdeathsig", "TERM",  # it ends with this process
                                            "chroot", self.root, SERVER, "-D", "-e", "-f", "/etc/sshd_test"],
                                           stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        for _ in range(100):
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", self.port)) == 0:
                    return
            time.sleep(0.1)
        with open(os.path.join(self.folder, "sshd.log")) as file:
            sys.exit("the ssh server did not start:\n" + file.read())

    def stop(self):
        if self.server:
            self.server.terminate()
            self.server.wait()
        self.server = None


def run(*command):
    subprocess.run(command, check=True)
