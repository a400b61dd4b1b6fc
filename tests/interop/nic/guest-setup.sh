#!/bin/sh
# guest-setup.sh DRIVER FOLDER PAGES: in the guest, makes /host, a root with the programs of the machine outside, and
# binds the NIC under test, whose MAC address ends in f1, to DRIVER (vfio-pci, uio_pci_generic). Prints its PCI address.
# FOLDER is what `rxe-peer up --share` shared. PAGES hugepages of 2 MiB are reserved.
set -e
driver=$1 folder=$2 pages=$3 root=/host

if ! [ -d $root/usr ]; then
	modprobe -a 9pnet_virtio 9p
	mkdir -p $root
	mount -t tmpfs -o mode=755 tmpfs $root
	mkdir -p $root/usr $root/proc $root/sys $root/dev $root/tmp $root/run $root/etc $root/root $root/var "$root$folder"
	mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 usr $root/usr
	mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 share "$root$folder"
	ln -s ../run $root/var/run
	for name in bin sbin lib lib64; do ln -s usr/$name $root/$name; done
	for name in proc sys dev; do mount --rbind /$name $root/$name; done
	cp /etc/passwd /etc/group /etc/hosts $root/etc
	chmod 1777 $root/tmp
	echo 'nobody:x:65534:65534::/:/bin/sh' >>$root/etc/passwd
	echo 'nogroup:x:65534:' >>$root/etc/group
	mkdir -p $root/dev/hugepages
	mount -t hugetlbfs hugetlbfs $root/dev/hugepages
fi
echo "$pages" >/proc/sys/vm/nr_hugepages

# The last Ethernet device on the bus: the guest's own network is the first.
for device in /sys/bus/pci/devices/*; do
	case $(cat "$device/class") in 0x020000) nic=$device ;; esac
done
modprobe "$driver"
if [ "$driver" = vfio-pci ]; then modprobe vfio_iommu_type1; fi
if [ -e "$nic/driver" ]; then echo "${nic##*/}" >"$nic/driver/unbind"; fi
echo "$driver" >"$nic/driver_override"
echo "${nic##*/}" >/sys/bus/pci/drivers_probe
[ "$(basename "$(readlink "$nic/driver")")" = "$driver" ]
echo "${nic##*/}"
