#!/bin/sh
# run.sh BUILD SUITE [TEST...]: tests in a full VM of another Debian. See README.md.
set -eu
[ $# -ge 2 ] || { echo "usage: run.sh BUILD SUITE [TEST...]" >&2; exit 2; }
[ "$(id -u)" = 0 ] || { echo "run.sh: needs root" >&2; exit 1; }
here=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
suite=$2
shift 2
[ $# -gt 0 ] || set -- test_kernel_cgroup test_kernel_process test_kernel_mounts test_container_isolation \
	test_container_life test_crash_restart
dir=$build/hosts-$suite
root=$dir/root
packages=linux-image-cloud-amd64,python3,libuv1,libjansson4,libarchive13,libssl3,libmicrohttpd12,libprotobuf-c1
packages=$packages,libsqlite3-0,libcurl4,erofs-utils,btrfs-progs,kmod,busybox-static,mount,procps,util-linux,iproute2,libcmocka0
# Names of libraries whose packages were renamed for 64-bit time.
[ "$suite" = bookworm ] || packages=$(echo "$packages" | sed 's/libuv1/libuv1t64/; s/libarchive13/libarchive13t64/; s/libssl3/libssl3t64/; s/libmicrohttpd12/libmicrohttpd12t64/; s/libprotobuf-c1/libprotobuf-c1/; s/libcurl4/libcurl4t64/')

mkdir -p "$dir"
if [ ! -e "$root/boot/vmlinuz" ]; then
	rm -rf "$root"
	mmdebstrap --quiet --variant=minbase --include="$packages" "$suite" "$root"
	cp "$root"/boot/vmlinuz-* "$root/boot/vmlinuz"
	cp "$root"/boot/initrd.img-* "$root/boot/initrd"
fi

# The programs where the build directory has them, the tests where the tree has them.
rm -rf "$root/dsec"
mkdir -p "$root/dsec/build"
(cd "$build" && find src tests bench -type f -perm -100 ! -name '*.so' ! -name '*.o' | tar -c -T - | tar -x -C "$root/dsec/build")
[ ! -d "$build/test-cache" ] || cp -r "$build/test-cache" "$root/dsec/build/"
(cd "$here" && tar -c tests/integration tests/run_unittest.py sdk | tar -x -C "$root/dsec")
cat >"$root/dsec/init" <<EOI
#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DSEC_BUILD=/dsec/build PYTHONDONTWRITEBYTECODE=1
mountpoint -q /proc || mount -t proc proc /proc
mountpoint -q /sys || mount -t sysfs sysfs /sys
mountpoint -q /dev || mount -t devtmpfs dev /dev
mount -t tmpfs tmpfs /run
mount -t cgroup2 -o nsdelegate cgroup2 /sys/fs/cgroup
for m in overlay erofs btrfs loop; do modprobe \$m; done
ip link set lo up
echo "kernel \$(uname -r), controllers \$(cat /sys/fs/cgroup/cgroup.controllers)"
bad=0
cd /dsec/tests/integration
for t in $*; do
	if [ -x /dsec/build/tests/\$t ]; then
		CMOCKA_MESSAGE_OUTPUT=TAP timeout 300 /dsec/build/tests/\$t
	else
		timeout 1500 python3 -W ignore \$t.py -v
	fi
	status=\$?
	echo "== \$t: status \$status"
	[ \$status = 0 ] || bad=1
done
left=\$(find /sys/fs/cgroup -name 'dsec-*' | wc -l)
echo "== cgroups left: \$left"
[ \$left = 0 ] || bad=1
echo "== result: \$bad"
sync
echo o >/proc/sysrq-trigger
sleep 10
EOI
chmod 755 "$root/dsec/init"
rm -f "$dir/disk.img"
truncate -s 4G "$dir/disk.img"
mkfs.ext4 -q -F -d "$root" "$dir/disk.img"
: >"$dir/serial.log"
timeout 3600 qemu-system-x86_64 -accel tcg,tb-size=256,thread=multi -cpu max -M q35 -smp 2 -m 3072 -nodefaults \
	-no-user-config -display none -serial "file:$dir/serial.log" -no-reboot -kernel "$root/boot/vmlinuz" \
	-initrd "$root/boot/initrd" -drive "file=$dir/disk.img,format=raw,if=virtio,cache=unsafe" \
	-append "console=ttyS0 root=/dev/vda rw init=/dsec/init panic=-1 quiet mitigations=off" || true
rm -f "$dir/disk.img"
cat "$dir/serial.log"
grep -q "== result: 0" "$dir/serial.log"
