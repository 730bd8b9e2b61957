#!/bin/sh
# Makes a kernel that runs as a process of this host (User-mode Linux) from the sources of Debian's
# kernel: .cache/interop/uml has it, laid out as the package of a kernel. It takes some minutes of
# compiling. The sources are changed in three places, none of which is in a driver of the adapter:
# - the condition that keeps the drivers of RDMA devices out of User-mode Linux goes;
# - the registers of a process may have the size that they have on a processor with AMX: otherwise no
#   process starts on one;
# - a write to the adapter masks interrupts while it changes the queue of writes: the interrupt that
#   empties the queue would change it at the same time, and the queue then breaks under load.
# Run as root on Debian 12. A second run finds everything and does not use the network.
set -eu
cd "$(dirname "$0")/.."
cache=$PWD/.cache/interop
config=$PWD/interop/guest/files/uml.config
cmp -s "$config" "$cache/uml/config" && exit

packages="gcc libc6-dev make flex bison bc xz-utils"
missing=
for package in $packages; do
	dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing="$missing $package"
done
apt-get update -q
[ -z "$missing" ] || DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing

rm -rf "$cache/uml.new"
mkdir -p "$cache/uml.new/boot"
cd "$cache/uml.new"
apt-get download -q linux-source-6.12
dpkg -x ./*.deb package
tar -xf package/usr/src/linux-source-6.12.tar.xz
rm -r package ./*.deb
(
	cd linux-source-6.12
	sed -i '/^if !UML$/d; /^endif # !UML$/d' drivers/infiniband/Kconfig
	sed -i 's/HOST_FP_SIZE, 2696/HOST_FP_SIZE, 11008/' arch/x86/um/user-offsets.c
	sed -i '/^static int um_pci_send_cmd/,/^}/ {
		s/bool posted;/& unsigned long irqs;/
		s/buf = get_cpu_var(um_pci_msg_bufs);/local_irq_save(irqs); &/
		s/put_cpu_var(um_pci_msg_bufs);/& local_irq_restore(irqs);/
	}' arch/um/drivers/virt-pci.c
	make -s ARCH=um KCONFIG_ALLCONFIG="$config" allnoconfig
	while read -r line; do
		case $line in
		CONFIG_*) grep -qxF "$line" .config || { echo "interop: the kernel does not take $line"; exit 1; } ;;
		esac
	done <"$config"
	make -s ARCH=um -j "$(nproc)"
	make -s ARCH=um INSTALL_MOD_PATH="$cache/uml.new" INSTALL_MOD_STRIP=1 DEPMOD=true modules_install
	cp linux "$cache/uml.new/boot/vmlinuz-$(make -s ARCH=um kernelrelease)"
)
rm -rf linux-source-6.12 "$cache/uml"
cp "$config" config
mv "$cache/uml.new" "$cache/uml"
echo "interop: ready, User-mode Linux $(cd "$cache/uml/lib/modules" && echo *)"
