#!/bin/sh
# Gets what the virtual machines of the interoperability tests need beside the packages of
# scripts/setup.sh, which calls this script: Debian's kernels and QEMU, unpacked (never installed)
# in .cache/interop of the checkout. Run as root on Debian 12. A second run finds everything and
# does not use the network.
set -eu
cd "$(dirname "$0")/.."
cache=$PWD/.cache/interop

if ! [ -e "$cache/kernel/boot" ]; then
	# linux-image-amd64 is an empty package that depends on the current kernel.
	apt-get update -q
	kernel=$(apt-cache depends linux-image-amd64 | sed -n 's/^ *Depends: *\(linux-image-[0-9].*\)/\1/p' | head -n 1)
	rm -rf "$cache/kernel.new"
	mkdir -p "$cache/kernel.new"
	(cd "$cache/kernel.new" && apt-get download -q "$kernel" && dpkg -x ./*.deb . && rm ./*.deb)
	rm -rf "$cache/kernel"
	mv "$cache/kernel.new" "$cache/kernel"
fi
# QEMU 10.1 or newer has the device vfio-user-pci, and the virtual machines of softmkey pci
# also run the kernel of Debian 13. Debian 12 has neither: the packages are unpacked, and
# never installed.
if ! [ -e "$cache/qemu" ] || ! [ -e "$cache/kernel-6.12" ]; then
	rm -rf "$cache/trixie.new"
	mkdir -p "$cache/trixie.new/apt/lists/partial" "$cache/trixie.new/apt/cache/archives/partial" "$cache/trixie.new/qemu" "$cache/trixie.new/kernel"
	(
		cd "$cache/trixie.new"
		for suite in trixie trixie-updates trixie-backports; do
			echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian $suite main"
		done >apt/sources.list
		: >apt/status
		cat >apt/apt.conf <<-END
			Dir::State "$PWD/apt";
			Dir::State::status "$PWD/apt/status";
			Dir::Cache "$PWD/apt/cache";
			Dir::Etc::sourcelist "$PWD/apt/sources.list";
			Dir::Etc::sourceparts "-";
			APT::Install-Recommends "false";
			APT::Sandbox::User "root";
		END
		export APT_CONFIG="$PWD/apt/apt.conf"
		apt-get update -q
		apt-get install -q -y --download-only -t trixie-backports qemu-system-x86 seabios
		for package in apt/cache/archives/*.deb; do dpkg -x "$package" qemu; done
		image=$(apt-cache show linux-image-amd64/trixie | sed -n 's/^Depends: *\(linux-image-[^ ]*\).*/\1/p' | head -n 1)
		(
			cd kernel && apt-get download -q "$image" && dpkg -x ./*.deb . && rm ./*.deb
			mkdir -p lib && mv usr/lib/modules lib && find lib -name '*.ko.xz' -print0 | xargs -0 -n 200 unxz
		)
		rm -rf "$cache/qemu" "$cache/kernel-6.12"
		mv kernel "$cache/kernel-6.12"
	) && mv "$cache/trixie.new/qemu" "$cache/qemu" || echo "interop: no QEMU with vfio-user-pci: the tests of softmkey pci are not run"
	rm -rf "$cache/trixie.new"
fi
echo "interop: ready, kernel $(cd "$cache/kernel/lib/modules" && echo *)"
