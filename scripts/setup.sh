#!/bin/sh
# Installs the Debian packages of the groups run, interop, bench and docs, which scripts/packages lists;
# without an argument all of them. Nothing here is needed to build softmkey, which is plain Go.
#
#   scripts/setup.sh [GROUP...]
#   scripts/setup.sh --list GROUP...     prints the packages and installs nothing
#
# The group interop also gets kernels and QEMU for the virtual machines (interop/setup.sh) if the user is root.
set -eu
cd "$(dirname "$0")/.."

list=
[ "${1:-}" != --list ] || { list=yes; shift; }
[ $# != 0 ] || set -- run interop bench docs
packages=
for group in "$@"; do
	of_group=$(awk -v group="$group" '$1 == group { print $2 }' scripts/packages)
	[ -n "$of_group" ] || { echo "scripts/setup.sh: $group: must be one of the groups run, interop, bench and docs" >&2; exit 2; }
	packages="$packages $of_group"
done
if [ -n "$list" ]; then
	echo $packages | tr ' ' '\n'
	exit
fi

missing=
for p in $packages; do
	dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null | grep -qx installed || missing="$missing $p"
done
if [ -n "$missing" ]; then
	as_root=
	if [ "$(id -u)" != 0 ]; then
		sudo -n true 2>/dev/null || {
			echo "This user may not install packages. As root, run:" >&2
			echo "  apt-get install -y --no-install-recommends$missing" >&2
			exit 1
		}
		as_root="sudo -E"
	fi
	export DEBIAN_FRONTEND=noninteractive
	$as_root apt-get update -q
	# Another release of Debian, or Ubuntu, may lack a package, or have it with another name.
	there=
	for p in $missing; do
		if apt-get install -q -s --no-install-recommends "$p" >/dev/null 2>&1; then
			there="$there $p"
		else
			echo "scripts/setup.sh: $p: this system's archives do not have the package; the tests that need it are skipped" >&2
		fi
	done
	[ -z "$there" ] || $as_root apt-get install -q -y --no-install-recommends $there
fi

case " $* " in
*" interop "*)
	if [ "$(id -u)" = 0 ]; then
		interop/setup.sh
	else
		echo "scripts/setup.sh: virtual machines need root: sudo interop/setup.sh gets their kernels"
	fi
	;;
esac
