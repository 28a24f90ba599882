#!/bin/sh
# Boots another kernel under TCG with the built programs as its RAM disk and runs
# the container path and integration tests there. See README.md of this folder.
# Exit status 0 only if the guest said that everything passed.
set -eu

BUILD=$(realpath "${1:?usage: run-vm.sh BUILD [TEST...]}")
shift
SOURCE=$(realpath "$(dirname "$0")/../..")
VM=$BUILD/vm
TESTS=${*:-test_layers_mounter.py test_layers_import.py test_container_life.py test_container_isolation.py}
[ "$TESTS" != none ] || TESTS=
MEMORY=${DSEC_VM_MEMORY:-6144}
TIMEOUT_S=${DSEC_VM_TIMEOUT_S:-900}
PROGRAMS="dsec dsecd dsec-mounter dsec-spawner chronus dsec-layer-import container_drive probe_init"
TOOLS="mkfs.erofs mkfs.btrfs zstd tar losetup mount umount sha256sum stat getfattr getcap"
# Dependencies are found by modprobe in the guest.
MODULES="loop btrfs erofs overlay crc32c-intel"
PYTHON_LEAVE_OUT="test idlelib lib2to3 tkinter ensurepip pydoc_data turtledemo distutils"

die() { echo "run-vm: $*" >&2; exit 1; }
command -v qemu-system-x86_64 >/dev/null || die "qemu-system-x86 is not installed"
command -v busybox >/dev/null || die "busybox-static is not installed"

# The kernel package, unpacked once: $VM/kernel/boot/vmlinuz-*, lib/modules/*.
get_kernel() {
	deb=${DSEC_VM_KERNEL_DEB:-}
	mkdir -p "$VM"
	if [ -z "$deb" ]; then
		package=$(apt-cache depends linux-image-cloud-amd64 | sed -n 's/.*Depends: //p' | head -n 1)
		deb=$(ls "$VM/$package"_*.deb 2>/dev/null | head -n 1)
		if [ -z "$deb" ]; then
			(cd "$VM" && apt-get download "$package" >apt.log 2>&1) || die "apt-get download $package: $VM/apt.log"
			deb=$(ls "$VM/$package"_*.deb)
		fi
	fi
	KERNEL=$VM/kernel-$(basename "$deb" .deb)
	if [ ! -d "$KERNEL" ]; then
		rm -rf "$KERNEL.new"
		dpkg-deb -x "$deb" "$KERNEL.new"
		mv "$KERNEL.new" "$KERNEL"
	fi
	RELEASE=$(ls "$KERNEL/lib/modules")
}

# A file at the same path in the guest, with the libraries that it needs.
add() {
	for file in "$@"; do
		mkdir -p "$ROOT/$(dirname "$file")"
		cp -L "$file" "$ROOT/$file"
		ldd "$file" 2>/dev/null | sed -n 's|.*[[:space:]]\(/[^ ]*\) (0x.*|\1|p' | while read -r library; do
			[ -e "$ROOT/$library" ] || { mkdir -p "$ROOT/$(dirname "$library")"; cp -L "$library" "$ROOT/$library"; }
		done
	done
}

add_python() {
	python=$(realpath /usr/bin/python3)
	add "$python"
	ln -sf "$python" "$ROOT/usr/bin/python3"
	library=/usr/lib/$(basename "$python")
	mkdir -p "$ROOT/usr/lib"
	cp -a "$library" "$ROOT/usr/lib/"
	for folder in $PYTHON_LEAVE_OUT; do rm -rf "$ROOT/$library/$folder"; done
	find "$ROOT/$library" -name __pycache__ -exec rm -rf {} +
	find "$library/lib-dynload" -name '*.so' | while read -r extension; do add "$extension"; done
}

# The modules named and what they depend on, with the index that modprobe wants.
add_modules() {
	from=$KERNEL/lib/modules/$RELEASE
	to=$ROOT/lib/modules/$RELEASE
	[ -e "$from/modules.dep" ] || busybox depmod -b "$KERNEL" "$RELEASE"
	mkdir -p "$to"
	cp "$from"/modules.builtin* "$from/modules.order" "$to/"
	for module in $MODULES; do
		grep "/$module\.ko:" "$from/modules.dep" | tr -d : | tr ' ' '\n'
	done | sort -u | while read -r file; do
		mkdir -p "$to/$(dirname "$file")"
		cp "$from/$file" "$to/$file"
	done
	busybox depmod -b "$ROOT" "$RELEASE"
}

# A root for the sandboxes: busybox and its links.
make_base() {
	base=$VM/base
	rm -rf "$base"
	mkdir -p "$base/bin" "$base/etc" "$base/root"
	cp "$(realpath "$(command -v busybox)")" "$base/bin/busybox"
	for applet in $(busybox --list); do [ "$applet" = busybox ] || ln -s busybox "$base/bin/$applet"; done
	echo 'root:x:0:0:root:/root:/bin/sh' >"$base/etc/passwd"
	echo 'root:x:0:' >"$base/etc/group"
	tar -C "$base" --owner=0 --group=0 --numeric-owner -cf "$ROOT/base.tar" .
}

make_ramdisk() {
	ROOT=$VM/root
	rm -rf "$ROOT"
	mkdir -p "$ROOT/bin" "$ROOT/proc" "$ROOT/sys" "$ROOT/dev" "$ROOT/tmp" "$ROOT/run" "$ROOT/mnt" "$ROOT/etc" "$ROOT/root" "$ROOT/build"
	cp "$(realpath "$(command -v busybox)")" "$ROOT/bin/busybox"
	ln -s busybox "$ROOT/bin/sh"
	mkdir -p "$ROOT/usr/bin" "$ROOT/usr/sbin" "$ROOT/sbin" "$ROOT/lib64"
	cp /etc/passwd /etc/group "$ROOT/etc/"
	for tool in $TOOLS; do
		path=$(command -v "$tool" || true)
		[ -z "$path" ] || add "$(realpath "$path")"
		[ -z "$path" ] || [ -e "$ROOT/$path" ] || ln -s "$(realpath "$path")" "$ROOT/$path" 2>/dev/null || true
	done
	for program in $PROGRAMS; do
		path=$(find "$BUILD/src" -type f -name "$program" -perm -u+x | head -n 1)
		[ -n "$path" ] || die "$program is not built in $BUILD"
		folder=build/${path#"$BUILD/"}
		mkdir -p "$ROOT/$(dirname "$folder")"
		cp "$path" "$ROOT/$folder"
		add "$path"
		rm -f "$ROOT/$path"
	done
	add_python
	add_modules
	make_base
	mkdir -p "$ROOT/source/tests"
	cp -a "$SOURCE/tests/integration" "$ROOT/source/tests/"
	cp "$SOURCE/tests/hosts/guest-init.sh" "$ROOT/init"
	chmod 755 "$ROOT/init"
	printf 'MODULES="%s"\nTESTS="%s"\n' "$MODULES" "$TESTS" >"$ROOT/etc/guest.conf"
	(cd "$ROOT" && find . | busybox cpio -o -H newc 2>/dev/null) >"$VM/ramdisk.cpio"
}

# Without the two clock parameters calibration in a nested guest hangs now and then.
boot() {
	khz=$(awk -F: '/cpu MHz/ { printf "%d", $2 * 1000; exit }' /proc/cpuinfo)
	timeout "$TIMEOUT_S" qemu-system-x86_64 -accel tcg,thread=multi,tb-size=256 -M pc -cpu max -smp 2 -m "$MEMORY" \
		-nodefaults -no-user-config -display none -serial stdio -no-reboot \
		-kernel "$KERNEL/boot/vmlinuz-$RELEASE" -initrd "$VM/ramdisk.cpio" \
		-append "console=ttyS0 panic=-1 quiet mitigations=off tsc_early_khz=$khz lpj=$((khz * 4))" \
		</dev/null 2>&1 | tee "$VM/console.log"
}

get_kernel
make_ramdisk
boot
grep -q '^DSEC-VM: PASS' "$VM/console.log" || die "failed; the console is in $VM/console.log"
