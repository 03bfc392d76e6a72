"""Boards whose address changes while they run, or all at once: the group finds them again.

    roam.py BUILD [SCENARIO...]
"""

from cluster import same_model_everywhere
from lan import Lan, allowed, ip
from scenarios import Scenarios

GROUP = {"lab": ["board-1", "board-2", "board-3"]}
JOB = {"rounds": 30, "local_steps": 60, "rejoin": "30 s", "form": "10 s", "timeout": "60 s", "quorum": 1, "mixed": True}
scenario = Scenarios()


class Roaming(Lan):
    """Boards listen at all their addresses, as one must whose address may change."""

    def group_text(self, board, members):
        return super().group_text(board, members).replace(f'listen: "{self.hosts[board]}:', 'listen: "0.0.0.0:')

    def move(self, name, host):
        """DHCP gives it another address; or the interface went away and came back with one."""
        space = self.space(name)
        ip("-n", space, "link", "set", "lan", "down")
        ip("-n", space, "address", "del", f"{self.hosts[name]}/24", "dev", "lan")
        ip("-n", space, "address", "add", f"{host}/24", "dev", "lan")
        ip("-n", space, "link", "set", "lan", "up")
        self.hosts[name] = host


def begin(lan):
    lan.start_all()
    lan.wait_for_line("board-1", "version 2: held-out")
    for board in lan.boards:
        assert lan.views(board, 3) == 1, "the group did not form at once"


def finish(lan):
    lan.wait_for_end(150)
    lan.replay()
    same_model_everywhere(lan)


def whole_again(lan, times):
    for board in lan.boards:
        lan.wait_for_view(board, 3, times, timeout=40)


@scenario
def a_member_comes_back_at_another_address(build):
    """A follower, then the leader, then the follower at its old address again."""
    with Roaming(build, GROUP, **JOB) as lan:
        begin(lan)
        old = lan.hosts["board-3"]
        lan.move("board-3", "10.77.0.33")
        whole_again(lan, 2)
        lan.wait_for_line("board-1", f"board-3 answers at 10.77.0.33:{lan.board_ports['board-3']}; group.members says {old}")
        lan.move("board-1", "10.77.0.31")
        whole_again(lan, 3)
        lan.move("board-3", old)
        whole_again(lan, 4)
        finish(lan)
        for board in lan.boards:
            assert lan.views(board, 2) == 0, f"{board} was in a group without the others"


@scenario
def two_members_that_move_at_once_find_each_other(build):
    with Roaming(build, GROUP, **JOB) as lan:
        begin(lan)
        lan.move("board-1", "10.77.0.31")
        lan.move("board-2", "10.77.0.32")
        whole_again(lan, 2)
        lan.wait_for_line("board-1", "board-2 answers at 10.77.0.32:")
        lan.wait_for_line("board-2", "board-1 answers at 10.77.0.31:")
        finish(lan)


@scenario
def all_members_that_move_at_once_find_each_other(build):
    with Roaming(build, GROUP, **JOB) as lan:
        begin(lan)
        for index, board in enumerate(lan.boards):
            lan.move(board, f"10.77.0.{31 + index}")
        whole_again(lan, 2)
        lan.wait_for_line("board-3", "board-1 answers at 10.77.0.31:")
        lan.wait_for_line("board-1", "board-3 answers at 10.77.0.33:")
        for board in lan.boards:  # started anew, they know the addresses of the profile only
            lan.kill(board)
        for board in lan.boards:
            lan.start(board)
        whole_again(lan, 3)
        finish(lan)


if __name__ == "__main__":
    scenario.main(possible=allowed)
