"""A board that is a virtual machine: QEMU's arm64 "virt" with an image as its disk.

The guest sees this machine's loopback as 10.0.2.2 and nothing else. A guest is ended by its pid, which is
a cut of its power but for what the host's page cache keeps.
"""

import shutil
import subprocess
import time

QEMU = "qemu-system-aarch64"
ROOT = "6f1e4b0a-0000-4000-8000-00000000000a"


class Guest:
    def __init__(self, image, log, options="", memory=512, processors=2, firmware=None):
        self.image, self.log_path, self.options, self.firmware = image, log, options, firmware
        self.memory, self.processors = memory, processors
        self.process = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.cut_power()

    def start(self, options=None, devices=(), ssh_port=None):
        """ssh_port: of this machine's loopback, for the guest's ssh server."""
        forward = f",hostfwd=tcp:127.0.0.1:{ssh_port}-:22" if ssh_port else ""
        words = f"console=ttyAMA0 panic=-1 quiet root=PARTUUID={ROOT} ro init=/sbin/init "
        command = [
            QEMU, "-M", "virt", "-cpu", "cortex-a57", "-smp", str(self.processors), "-m", str(self.memory), "-nographic",
            "-nodefaults", "-serial", "stdio",
            "-netdev", f"user,id=net,restrict=off{forward}", "-device", "virtio-net-pci,netdev=net,romfile=",
            "-drive", f"file={self.image},if=none,id=disk,format=raw", "-device", "nvme,drive=disk,serial=cairn",
            *devices,
        ]
        if self.firmware:  # finds the kernel in the image, and is there again after a reboot
            command += ["-bios", self.firmware]
        else:
            command += ["-no-reboot", "-kernel", f"{self.image}.kernel",
                        "-append", words + (self.options if options is None else options)]
        with open(self.log_path, "ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def cut_power(self):
        if self.process and self.process.poll() is None:
            self.process.kill()
        if self.process:
            self.process.wait()

    def wait_for_power_off(self, timeout):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"the guest did not power off in {timeout} s\n{self.tail()}") from None
        assert code == 0, f"QEMU ended with {code}\n{self.tail()}"

    def wait_for_line(self, text, count=1, timeout=60, unless=None):
        """Fails at once when the guest says what must not be: unless."""
        deadline = time.monotonic() + timeout
        while self.log().count(text) < count:
            if unless and unless in self.log():
                raise AssertionError(f"the guest said '{unless}'\n{self.tail()}")
            if time.monotonic() > deadline or self.process.poll() is not None:
                raise AssertionError(f"the guest did not say '{text}' {count} times in {timeout} s\n{self.tail()}")
            time.sleep(0.05)

    def written(self):
        """The bytes that QEMU has written, most of them to its disks."""
        with open(f"/proc/{self.process.pid}/io") as file:
            return int(dict(line.split(": ") for line in file)["wchar"])

    def log(self):
        with open(self.log_path, errors="replace") as file:
            return file.read()

    def tail(self):
        return "".join(self.log().splitlines(keepends=True)[-40:])


def missing_tools(*extra):
    return [tool for tool in (QEMU, "debugfs", "mke2fs", "sfdisk", *extra) if not shutil.which(tool)]
