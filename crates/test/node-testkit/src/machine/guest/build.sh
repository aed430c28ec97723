# Makes the machine: rootfs.img, vmlinuz and initrd in the folder OUT.
#
# Runs in its own mount and PID namespace: the Debian tree grows on a tmpfs that nobody else sees, so
# an interrupted build leaves no mount, no process and no tree behind. Writes nothing but OUT.
# Takes: OUT, SUITE, MIRROR, PACKAGES (comma separated), SIZE_MB, UNIT and ENTRY (texts of the two
# files that the machine gets from us), POLICY (a module for a machine with SELinux).
set -eu

mount -t tmpfs -o mode=0755,size=4g tmpfs /mnt
tree=/mnt/tree

debootstrap --variant=minbase --include="$PACKAGES" "$SUITE" "$tree" "$MIRROR"

printf '%s' "$UNIT" > "$tree/etc/systemd/system/payload.service"
printf '%s' "$ENTRY" > "$tree/usr/local/sbin/payload"
chmod 0755 "$tree/usr/local/sbin/payload"
units="$tree/etc/systemd/system"
mkdir -p "$units/multi-user.target.wants"
ln -s ../payload.service "$units/multi-user.target.wants/payload.service"
ln -s /lib/systemd/system/multi-user.target "$units/default.target"
# What only costs start time in a machine that lives for one payload. The kernel loads loop, fuse and
# dm_mod by itself when somebody opens their devices.
for unit in serial-getty@ttyS0.service getty@tty1.service apt-daily.timer apt-daily-upgrade.timer \
    dpkg-db-backup.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service systemd-timesyncd.service \
    systemd-pstore.service modprobe@dm_mod.service modprobe@drm.service modprobe@fuse.service \
    modprobe@loop.service sys-fs-fuse-connections.mount sys-kernel-debug.mount \
    sys-kernel-tracing.mount systemd-update-utmp.service apparmor.service; do
    ln -sf /dev/null "$units/$unit"
done
echo '/dev/disk/by-id/virtio-root / ext4 rw,noatime 0 0' > "$tree/etc/fstab"
echo keelson-machine > "$tree/etc/hostname"
printf '127.0.0.1 localhost keelson-machine\n::1 localhost\n' > "$tree/etc/hosts"
# An own, fixed identity: without it the first boot of every throw-away copy generates one.
echo 6b65656c736f6e6d616368696e650001 > "$tree/etc/machine-id"

# The initial disk carries only what finds the root; the rest of the modules wait there.
sed -i 's/^MODULES=.*/MODULES=list/; s/^COMPRESS=.*/COMPRESS=lz4/' "$tree/etc/initramfs-tools/initramfs.conf"
printf 'virtio_pci\nvirtio_blk\next4\n' >> "$tree/etc/initramfs-tools/modules"
kernel=$(ls "$tree/lib/modules")
chroot "$tree" update-initramfs -u -k "$kernel"

cp "$tree/boot/vmlinuz-$kernel" "$OUT/vmlinuz"
cp "$tree/boot/initrd.img-$kernel" "$OUT/initrd"
rm -rf "$tree"/boot/* "$tree"/var/cache/apt/* "$tree"/var/lib/apt/lists/* "$tree"/usr/share/doc/* \
    "$tree"/usr/share/man/* "$tree"/usr/share/locale/*
# Debian's policy names the types of containers and has none of them. And files carry their labels from
# the start: a first boot that labels them all takes minutes in emulation.
contexts=etc/selinux/default/contexts/files/file_contexts
if [ -e "$tree/$contexts" ]; then
    printf '%s' "$POLICY" > "$tree/tmp/container.cil"
    mount -t proc proc "$tree/proc"
    chroot "$tree" semodule --store default --noreload --install /tmp/container.cil
    chroot "$tree" setfiles -m -F -e /proc "/$contexts" /
    umount "$tree/proc"
    rm "$tree/tmp/container.cil"
fi
truncate -s "${SIZE_MB}M" "$OUT/rootfs.img"
mkfs.ext4 -q -F -L root -E lazy_itable_init=1 -d "$tree" "$OUT/rootfs.img"
