"""The command lines are exactly these: a flag that is lost is a hole that nothing reports."""

from dataclasses import replace
from pathlib import Path

from broker.engines.bubblewrap_argv import (
    Descriptors,
    Places,
    as_root,
    as_user,
    bubblewrap_command,
    bubblewrap_options,
    limited,
)
from broker.engines.layout import Layout
from broker.engines.podman_argv import PodmanSetting, podman_run
from broker.engines.spec import HostRoot, SandboxLimits, SandboxSpec
from protocol.ids import Digest, Id

SPEC = SandboxSpec(
    role="agent",
    attempt_id=Id("attempt-1"),
    root=HostRoot(Path("/state/adapters/a"), Digest("sha256:" + "0" * 64)),
    argv=("/usr/bin/python3", "/adapter"),
    env=(("NAME", "value"),),
    limits=SandboxLimits(
        cpus=1.5,
        memory_bytes=268435456,
        pids=64,
        tmp_bytes=16777216,
        file_bytes=67108864,
        open_files=1024,
    ),
    deadline_seconds=90.0,
    work=None,
    stdin=True,
)
LAYOUT = Layout(
    binds=(("/usr", "/usr"), ("/etc/ld.so.cache", "/etc/ld.so.cache")),
    links=(("usr/bin", "/bin"),),
    hidden=("/usr/local",),
    files=(("/etc/passwd", b"agent"), ("/etc/hosts", b"localhost")),
    masks=("/proc/keys",),
)
DESCRIPTORS = Descriptors(args=3, seccomp=9, status=8, files=(5, 6))
SETTING = PodmanSetting(
    seccomp=Path("/state/seccomp.json"),
    hosts=Path("/state/hosts"),
    group_limits=True,
    memory_parent=False,
)


def options(spec: SandboxSpec, places: Places) -> str:
    return " ".join(bubblewrap_options(spec, layout=LAYOUT, places=places, descriptors=DESCRIPTORS))


def test_bubblewrap_is_given_these_options_and_no_others() -> None:
    expected = """
        --unshare-all --unshare-user --disable-userns
        --die-with-parent --new-session --clearenv
        --setenv PATH /usr/bin:/bin:/usr/sbin:/sbin --setenv HOME /tmp --setenv LANG C.UTF-8
        --setenv NAME value
        --ro-bind /usr /usr --ro-bind /etc/ld.so.cache /etc/ld.so.cache
        --tmpfs /usr/local --remount-ro /usr/local
        --symlink usr/bin /bin
        --perms 0644 --file 5 /etc/passwd --perms 0644 --file 6 /etc/hosts
        --proc /proc --dev /dev
        --perms 1777 --size 1048576 --tmpfs /dev/shm
        --remount-ro /dev
        --perms 1777 --size 16777216 --tmpfs /tmp
        --ro-bind /dev/null /proc/keys
        --perms 0755 --dir /home
        --ro-bind /mnt/adapter /adapter
        --remount-ro /
        --uid 10001 --gid 10001 --cap-drop ALL
        --hostname agent --chdir /tmp
        --seccomp 9 --json-status-fd 8
    """
    given = options(SPEC, Places(adapter="/mnt/adapter", work=None))

    assert given == " ".join(expected.split())


def test_only_a_work_folder_can_be_written() -> None:
    given = options(replace(SPEC, work=Path("/state/w")), Places(adapter=None, work="/mnt/work"))

    assert given.count("--bind") == 1
    assert "--bind /mnt/work /work --remount-ro /" in given
    assert "--chdir /work" in given


def test_the_command_line_that_is_seen_inside_names_no_path_of_the_host() -> None:
    command = bubblewrap_command(
        "/usr/bin/bwrap", name="airlock-a-b", args=3, argv=("/bin/true", "x")
    )

    assert command == (
        *("/usr/bin/bwrap", "--args", "3", "--unsetenv", "airlock-a-b"),
        *("--", "/bin/true", "x"),
    )


def test_a_user_is_bound_to_its_parent_and_its_limits() -> None:
    inner = limited(("bwrap",), limits=SPEC.limits, memory=True, pids=False)
    outer = as_user(inner, parent=77)

    assert inner == (
        *("prlimit", "--nofile=1024:1024", "--core=0:0", "--fsize=67108864:67108864"),
        *("--data=268435456:268435456", "--", "bwrap"),
    )
    assert outer[:5] == ("setpriv", "--no-new-privs", "--pdeathsig", "KILL", "--")
    assert outer[5:9] == ("/bin/sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"', "77")
    assert outer[9:] == inner


def test_root_stages_the_folders_and_gives_up_its_rights_before_bubblewrap() -> None:
    command = as_root(
        ("bwrap", "--args", "3"),
        parent=77,
        uid=1900000001,
        staging_point="/mnt",
        staged=(("adapter", "/state/a b"), ("work", "/state/w")),
    )
    script = command[7]

    assert command[:5] == ("unshare", "--mount", "--propagation", "private", "--")
    assert command[8:11] == ("airlock", "/mnt", "1900000001")
    assert command[11:16] == ("adapter", "/state/a b", "work", "/state/w", "--")
    assert command[-3:] == ("bwrap", "--args", "3")
    assert 'exec setpriv --reuid "$uid" --regid "$uid" --clear-groups' in script
    assert script.index("setpriv") > script.index("mount")
    assert "--no-new-privs" in script


def test_podman_is_given_these_arguments_and_no_others() -> None:
    expected = """
        run --interactive --name airlock-o-1
        --label airlock=1 --label airlock.owner=o --label airlock.attempt=attempt-1
        --pull=never --network=none --no-hosts
        --mount type=bind,"src=/state/hosts",dst=/etc/hosts,bind-propagation=private,ro=true
        --read-only --read-only-tmpfs=false
        --tmpfs /tmp:rw,noexec,nosuid,nodev,mode=1777,size=16777216
        --image-volume=ignore --shm-size=1048576b
        --ipc=private --uts=private --pid=private --cgroupns=private
        --hostname=agent --cap-drop=ALL
        --security-opt=no-new-privileges
        --security-opt mask=/proc/kallsyms:/proc/cmdline:/proc/config.gz:/dev/mqueue
        --security-opt seccomp=/state/seccomp.json
        --user 10001:10001
        --cpus=1.5 --memory=268435456b --memory-swap=268435456b --pids-limit=64
        --ulimit nofile=1024:1024 --ulimit nproc=512:512
        --ulimit core=0:0 --ulimit fsize=67108864:67108864
        --log-driver=none --systemd=false --sdnotify=ignore --no-healthcheck
        --http-proxy=false --env-host=false --unsetenv-all
        --env PATH=/usr/bin:/bin:/usr/sbin:/sbin --env HOME=/tmp --env LANG=C.UTF-8
        --env NAME=value
        --stop-timeout=0 --timeout=120 --passwd=false --umask=0077 --workdir=/tmp
        --entrypoint=[] --init 0123
        /usr/bin/python3 /adapter
    """
    given = podman_run(SPEC, image_id="0123", name="airlock-o-1", owner="o", setting=SETTING)

    assert " ".join(given) == " ".join(expected.split())


def test_where_podman_keeps_no_limit_each_process_is_held() -> None:
    given = podman_run(
        replace(SPEC, stdin=False),
        image_id="0123",
        name="airlock-o-1",
        owner="o",
        setting=replace(SETTING, group_limits=False),
    )

    assert "--interactive" not in given
    assert not [part for part in given if part.startswith(("--memory", "--pids", "--cpus"))]
    assert "nproc=64:64" in given
    assert given[-6:] == (
        *("/bin/sh", "-c", 'ulimit -d "$0" && exec "$@"', "262144"),
        *("/usr/bin/python3", "/adapter"),
    )


def test_a_group_of_ours_above_podmans_holds_the_memory() -> None:
    given = podman_run(
        SPEC,
        image_id="0123",
        name="airlock-o-1",
        owner="o",
        setting=replace(SETTING, memory_parent=True),
    )

    assert "--cgroup-parent=/airlock-o-1" in given
    assert not [part for part in given if part.startswith("--memory")]


def test_a_folder_with_a_comma_or_a_quote_stays_one_field() -> None:
    spec = replace(SPEC, work=Path('/state/a,ro="b'))
    given = podman_run(spec, image_id="0123", name="n", owner="o", setting=SETTING)

    assert 'type=bind,"src=/state/a,ro=""b",dst=/work,bind-propagation=private' in given
