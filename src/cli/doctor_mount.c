/* doctor_mount.c: the file systems that sandboxes stand on, each mounted for real
 * in the private mount namespace of a child. See doctor.h. */
#include <errno.h>
#include <fcntl.h>
#include <linux/btrfs.h>
#include <linux/loop.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "base/cleanup.h"
#include "base/fdio.h"
#include "cli/doctor.h"

#define MAPPED_ROOT 0x30000000u /* where the first sandbox's ids begin */
#define BTRFS_IMAGE_BYTES (256ll << 20)
#ifndef BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA
#define BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA 4
#endif

/* A program with its output thrown away; 0 or negative errno. */
static int run_program(const char *const *argv)
{
	int status = 0;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		int null = open("/dev/null", O_RDWR);
		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		execvp(argv[0], (char *const *)argv);
		_exit(127);
	}
	if (waitpid(pid, &status, 0) < 0)
		return -errno;
	if (WIFEXITED(status) && WEXITSTATUS(status) == 127)
		return -ENOENT;
	return WIFEXITED(status) && !WEXITSTATUS(status) ? 0 : -EIO;
}

static int private_mounts(void)
{
	if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0)
		return -errno;
	return 0;
}

/* A user namespace that maps 0 to MAPPED_ROOT; its descriptor. */
static int mapped_userns(void)
{
	int ready[2], stay[2], fd = -1;
	char path[64], text[64], c;
	if (pipe2(ready, O_CLOEXEC) < 0 || pipe2(stay, O_CLOEXEC) < 0)
		return -errno;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (!pid) {
		close(stay[1]);
		if (unshare(CLONE_NEWUSER) < 0)
			_exit(1);
		(void)!write(ready[1], "r", 1);
		(void)!read(stay[0], &c, 1); /* to the parent's close */
		_exit(0);
	}
	close(ready[1]);
	int r = read(ready[0], &c, 1) == 1 ? 0 : -EPERM;
	snprintf(text, sizeof(text), "0 %u 65536\n", MAPPED_ROOT);
	snprintf(path, sizeof(path), "/proc/%d/uid_map", (int)pid);
	r = r < 0 ? r : write_file_at(AT_FDCWD, path, text);
	snprintf(path, sizeof(path), "/proc/%d/gid_map", (int)pid);
	r = r < 0 ? r : write_file_at(AT_FDCWD, path, text);
	snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
	if (!r && (fd = open(path, O_RDONLY | O_CLOEXEC)) < 0)
		r = -errno;
	close(ready[0]);
	close(stay[0]);
	close(stay[1]);
	waitpid(pid, NULL, 0);
	return r < 0 ? r : fd;
}

/* An autoclear loop device over the file: gone with its last user. */
static int loop_attach(const char *image, int flags, char ret_path[32])
{
	_cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int open_flags = flags & LO_FLAGS_READ_ONLY ? O_RDONLY : O_RDWR;
	_cleanup_close_ int file = open(image, open_flags | O_CLOEXEC);
	if (control < 0 || file < 0)
		return -errno;
	for (int tries = 0; tries < 16; tries++) {
		int n = ioctl(control, LOOP_CTL_GET_FREE);
		if (n < 0)
			return -errno;
		snprintf(ret_path, 32, "/dev/loop%d", n);
		_cleanup_close_ int fd = open(ret_path, open_flags | O_CLOEXEC);
		struct loop_config c = { .fd = (uint32_t)file, .info.lo_flags = (uint32_t)flags | LO_FLAGS_AUTOCLEAR };
		if (fd < 0)
			return -errno;
		if (!ioctl(fd, LOOP_CONFIGURE, &c))
			return TAKE_FD(fd);
		if (errno != EBUSY) /* somebody was faster */
			return -errno;
	}
	return -EBUSY;
}

/* Lower id-mapped, a file of root in it seen as the mapped root's, copy-up works.
 * The lower is an EROFS image, as a layer is: kernels before 6.3 id-map no tmpfs.
 * -ENOENT: mkfs.erofs is missing. */
static int overlay_idmapped(void *arg)
{
	const char *dir = arg;
	struct stat st;
	int r = private_mounts();
	if (r < 0 || mount("tmpfs", dir, "tmpfs", 0, "size=4m") < 0 || chdir(dir) < 0)
		return r < 0 ? r : -errno;
	static const char *const names[] = { "tree", "lower", "mapped", "upper", "work", "merged" };
	for (size_t i = 0; i < ARRAY_SIZE(names); i++)
		if (mkdir(names[i], 0755) < 0)
			return -errno;
	_cleanup_close_ int file = open("tree/f", O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
	_cleanup_close_ int ns = mapped_userns();
	if (file < 0 || ns < 0)
		return ns < 0 ? ns : -errno;
	char device[32];
	r = run_program((const char *const[]){ "mkfs.erofs", "-T0", "image", "tree", NULL });
	_cleanup_close_ int loop = r < 0 ? r : loop_attach("image", LO_FLAGS_READ_ONLY, device);
	if (loop < 0 || mount(device, "lower", "erofs", MS_RDONLY, NULL) < 0)
		return loop < 0 ? loop : -errno;
	_cleanup_close_ int tree = open_tree(AT_FDCWD, "lower", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC);
	struct mount_attr a = { .attr_set = MOUNT_ATTR_IDMAP | MOUNT_ATTR_RDONLY, .userns_fd = (uint64_t)ns };
	if (tree < 0 || mount_setattr(tree, "", AT_EMPTY_PATH, &a, sizeof(a)) < 0 ||
	    move_mount(tree, "", AT_FDCWD, "mapped", MOVE_MOUNT_F_EMPTY_PATH) < 0)
		return -errno;
	if (mount("overlay", "merged", "overlay", 0, "lowerdir=mapped,upperdir=upper,workdir=work") < 0 ||
	    stat("merged/f", &st) < 0)
		return -errno;
	if (st.st_uid != MAPPED_ROOT)
		return -EXDEV;
	return chmod("merged/f", 0600) < 0 ? -errno : 0;
}

struct erofs_probe {
	const char *image, *point;
};

static int erofs_by_file(void *arg)
{
	const struct erofs_probe *p = arg;
	int r = private_mounts();
	_cleanup_close_ int fs = r < 0 ? r : fsopen("erofs", FSOPEN_CLOEXEC);
	if (fs < 0 || fsconfig(fs, FSCONFIG_SET_FLAG, "ro", NULL, 0) < 0 ||
	    fsconfig(fs, FSCONFIG_SET_STRING, "source", p->image, 0) < 0 ||
	    fsconfig(fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return r < 0 ? r : -errno;
	_cleanup_close_ int m = fsmount(fs, FSMOUNT_CLOEXEC, MOUNT_ATTR_RDONLY);
	return m < 0 ? -errno : 0;
}

static int erofs_by_loop(void *arg)
{
	const struct erofs_probe *p = arg;
	char device[32];
	int r = private_mounts();
	_cleanup_close_ int fd = r < 0 ? r : loop_attach(p->image, LO_FLAGS_READ_ONLY, device);
	if (fd < 0)
		return fd;
	return mount(device, p->point, "erofs", MS_RDONLY, NULL) < 0 ? -errno : 0;
}

static void erofs(struct doctor *d, const char *dir)
{
	char image[256], empty[256];
	snprintf(image, sizeof(image), "%s/erofs.img", dir);
	snprintf(empty, sizeof(empty), "%s/point", dir);
	mkdir(empty, 0700);
	int r = run_program((const char *const[]){ "mkfs.erofs", "-T0", image, empty, NULL });
	if (r == -ENOENT)
		doctor_add(d, "erofs", LEVEL_FAIL, "apt-get install erofs-utils", "mkfs.erofs is not installed");
	else if (r < 0)
		doctor_add(d, "erofs", LEVEL_FAIL, "look at mkfs.erofs by hand", "mkfs.erofs fails");
	if (r < 0)
		return;
	struct erofs_probe p = { image, empty };
	r = doctor_in_child(erofs_by_file, &p);
	if (!r) {
		doctor_add(d, "erofs", LEVEL_OK, "", "mounts image files directly");
		return;
	}
	r = doctor_in_child(erofs_by_loop, &p);
	doctor_add(d, "erofs", r < 0 ? LEVEL_FAIL : LEVEL_OK, "layers cannot be mounted: a kernel with EROFS (modprobe erofs) is needed",
		   r < 0 ? "cannot be mounted: %s" : "mounts through loop devices (one a layer)", strerror(-r));
}

struct btrfs_probe {
	char image[256];
	const char *point;
};

static int btrfs_by_loop(void *arg)
{
	const struct btrfs_probe *p = arg;
	char device[32];
	int r = private_mounts();
	_cleanup_close_ int fd = r < 0 ? r : loop_attach(p->image, 0, device);
	if (fd < 0)
		return fd;
	if (mount(device, p->point, "btrfs", 0, NULL) < 0)
		return -errno;
	_cleanup_close_ int dir = open(p->point, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	struct btrfs_ioctl_quota_ctl_args a = { .cmd = BTRFS_QUOTA_CTL_ENABLE_SIMPLE_QUOTA };
	if (dir < 0)
		return -errno;
	if (ioctl(dir, BTRFS_IOC_QUOTA_CTL, &a) < 0) {
		a.cmd = BTRFS_QUOTA_CTL_ENABLE;
		if (ioctl(dir, BTRFS_IOC_QUOTA_CTL, &a) < 0)
			return -errno;
	}
	return 0;
}

static void btrfs(struct doctor *d, const char *dir)
{
	static const char remedy[] = "disk limits need btrfs: apt-get install btrfs-progs, and a kernel with it (modprobe btrfs)";
	struct btrfs_probe p;
	char point[256];
	snprintf(p.image, sizeof(p.image), "%s/btrfs.img", dir);
	snprintf(point, sizeof(point), "%s/point", dir);
	p.point = point;
	int fd = open(p.image, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
	int r = fd < 0 || ftruncate(fd, BTRFS_IMAGE_BYTES) < 0 ? -errno : 0;
	base_close(fd);
	r = r < 0 ? r : run_program((const char *const[]){ "mkfs.btrfs", "-q", p.image, NULL });
	if (r < 0)
		doctor_add(d, "btrfs", LEVEL_FAIL, remedy, r == -ENOENT ? "mkfs.btrfs is not installed" : "mkfs.btrfs fails");
	else {
		r = doctor_in_child(btrfs_by_loop, &p);
		doctor_add(d, "btrfs", r < 0 ? LEVEL_FAIL : LEVEL_OK, remedy,
			   r < 0 ? "with quota over a loop file does not work: %s" : "with quota, over a loop file", strerror(-r));
	}
}

static void loop_devices(struct doctor *d)
{
	_cleanup_close_ int fd = open("/dev/loop-control", O_RDWR | O_CLOEXEC);
	int n = fd < 0 ? -1 : ioctl(fd, LOOP_CTL_GET_FREE);
	if (n < 0)
		doctor_add(d, "loop_devices", LEVEL_FAIL, "load the driver: modprobe loop", "none can be had: %s",
			   strerror(errno));
	else
		doctor_add(d, "loop_devices", LEVEL_OK, "", "free, the next is loop%d", n);
}

void doctor_mounts(struct doctor *d)
{
	char dir[] = "/var/tmp/dsec-doctor-XXXXXX", path[256];
	if (!d->root) {
		doctor_add(d, "mounts", LEVEL_WARN, "run as root to know", "overlay, EROFS and btrfs were not probed");
		return;
	}
	loop_devices(d);
	if (!mkdtemp(dir)) {
		doctor_add(d, "mounts", LEVEL_FAIL, "make /var/tmp writable", "cannot make a directory in /var/tmp: %s", strerror(errno));
		return;
	}
	int r = doctor_in_child(overlay_idmapped, dir);
	doctor_add(d, "overlay_idmapped", r < 0 ? LEVEL_FAIL : LEVEL_OK, "a kernel with overlay over id-mapped layers is needed (Debian 12 or later has it)",
		   r < 0 ? "does not work: %s" : "works", strerror(-r));
	erofs(d, dir);
	btrfs(d, dir);
	static const char *const names[] = { "erofs.img", "btrfs.img" };
	for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
		snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
		unlink(path);
	}
	snprintf(path, sizeof(path), "%s/point", dir);
	rmdir(path);
	rmdir(dir);
}
