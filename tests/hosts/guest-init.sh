#!/bin/busybox sh
# PID 1 of the guest that run-vm.sh boots: a pure cgroup v2 host with Debian's
# kernel, then the container path and the tests named in /etc/guest.conf. Says
# "DSEC-VM: PASS" or "DSEC-VM: FAIL ..." and powers off.
#
# The RAM disk itself is no root for it: pivot_root(2) refuses the kernel's own
# rootfs, as no real host has it. So everything moves to a tmpfs first.
if [ ! -e /etc/moved ]; then
	/bin/busybox mkdir /moved
	/bin/busybox mount -t tmpfs -o size=80%,mode=755 root /moved
	for folder in /*; do
		[ "$folder" = /moved ] || /bin/busybox cp -a "$folder" /moved/
	done
	/bin/busybox touch /moved/etc/moved
	exec /bin/busybox switch_root /moved /init
fi
export PATH=/usr/bin:/usr/sbin:/bin:/sbin:/build/src/cli:/build/src/dsecd
/bin/busybox --install -s /bin 2>/dev/null
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
mkdir -p /dev/pts /dev/shm /var/tmp
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs -o size=80% tmpfs /tmp
mount -t tmpfs tmpfs /run
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
. /etc/guest.conf
for module in $MODULES; do modprobe "$module" || echo "no module $module"; done
ip link set lo up
hostname dsec-vm
export DSEC_BUILD=/build DSEC_STATE_DIR=/tmp/dsec HOME=/root LANG=C.UTF-8
failed=""

step() { # words, then a command: its failure is noted, the rest goes on
	words=$1
	shift
	begun=$(cut -d' ' -f1 /proc/uptime)
	if "$@" >/tmp/step.log 2>&1; then result=ok; else result="FAILED ($?)"; failed="$failed [$words]"; fi
	echo "DSEC-VM: $result: $words ($begun to $(cut -d' ' -f1 /proc/uptime) s)"
	[ "$result" = ok ] || tail -n 60 /tmp/step.log
}

says() { # expected words, then a command
	want=$1
	shift
	"$@" >/tmp/says.log 2>&1
	status=$?
	cat /tmp/says.log
	[ $status = 0 ] && grep -q "$want" /tmp/says.log
}

nothing_left() {
	ps | grep -E 'dsec|chronus' | grep -v grep && return 1
	grep -E 'overlay|btrfs|erofs' /proc/mounts && return 1
	ls -d /sys/block/loop*/loop 2>/dev/null && return 1
	find /sys/fs/cgroup -mindepth 1 -type d | grep . && return 1
	return 0
}

echo "DSEC-VM: kernel $(uname -r), cgroups: $(grep cgroup /proc/mounts | cut -d' ' -f3 | sort -u | tr '\n' ' ')"
echo "DSEC-VM: controllers $(cat /sys/fs/cgroup/cgroup.controllers)"
step "doctor" dsec doctor
cat /tmp/step.log
step "up" dsec up --detach --state-dir /tmp/dsec
step "layer import" dsec layer import /base.tar base@1
step "run as root" says "uid=0" dsec run --env base@1 -- id
step "exit code" sh -c 'dsec run --env base@1 -- sh -c "exit 7"; [ $? = 7 ]'
step "memory limit is seen" says "MemTotal: *524288 kB" dsec run --env base@1 -- cat /proc/meminfo
step "disk limit holds" says "uota exceeded" dsec run --env base@1 --disk 32m -- sh -c "dd if=/dev/zero of=/big bs=1M count=64; exit 0"
step "down" dsec down --state-dir /tmp/dsec
step "nothing left" nothing_left
[ -n "$failed" ] && for f in /tmp/dsec/log/* /tmp/dsec/*.log; do [ -f "$f" ] && { echo "== $f"; tail -n 30 "$f"; }; done
cd /source/tests/integration
for test in $TESTS; do
	step "$test" python3 -W ignore "$test"
	tail -n 3 /tmp/step.log
done
if [ -z "$failed" ]; then echo "DSEC-VM: PASS"; else echo "DSEC-VM: FAIL$failed"; fi
sync
poweroff -f
