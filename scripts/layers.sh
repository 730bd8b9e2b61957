#!/usr/bin/env bash
# Checks the import order of the packages (docs/architecture.md). Tests may import more.
set -euo pipefail -f
cd "$(dirname "$0")/.."

# A floor for each row, from the bottom to the top: its name, its packages, and after the colon what they may
# import: other floors by their names, and modules of others. Each package may import its own floor.
# A pattern that ends in /* stands for a folder and all packages below it.
floors='
ground    operr rdma internal/ibv internal/flags      :
base      internal/base/*                             : ground golang.org/x/sys/*
data      sig xts dek mkey/* mkeyio internal/keydoor internal/mkeytest  : ground base golang.org/x/sys/*
net       packetconn/* internal/net/*                 : ground base golang.org/x/sys/*
transport internal/roce/*                             : ground base net
device    internal/device/*                           : ground base data net transport
front     verbs cm                                    : ground base data net transport device
hca       internal/hca/*                              : ground base data net transport device github.com/mdlayher/netlink/* golang.org/x/sys/*
tool      internal/tool/*                             : ground base data net transport device front golang.org/x/sys/* github.com/gopacket/gopacket/* github.com/prometheus/client_golang/prometheus/* golang.org/x/sync/*
command   cmd/softmkey                                : ground base data net transport device front hca tool golang.org/x/sys/* golang.org/x/term github.com/spf13/* github.com/schollz/progressbar/*
root      github.com/softmkey/softmkey examples/*     : ground data front packetconn/*
'

# Inside the floors, rows of packages and what they must not import, although their floor may: the rooms that are
# pure, and who alone knows a room or a module. A package that follows "but" is an exception.
never='
xts                        : sig dek mkey
verbs cm internal/device/* internal/hca/* internal/tool/* cmd/softmkey : internal/base/kernel/* but internal/tool/bench
internal/net/* internal/base/* : internal/base/kernel/* but internal/net/wire internal/base/kernel/*
internal/hca/prm           : internal/roce/* mkey dek internal/device/* internal/net/* internal/hca/* golang.org/x/sys/*
internal/hca/pump          : internal/device/* internal/hca/*
internal/hca/*             : github.com/mdlayher/netlink/* but internal/hca/nldev
internal/tool/*            : github.com/gopacket/gopacket/* but internal/tool/pcap
internal/tool/*            : github.com/prometheus/client_golang/prometheus/* but internal/tool/metrics
internal/tool/nvmet/nvme   : sig mkey mkeyio verbs cm internal/*
internal/tool/nvmet        : verbs cm internal/roce/* internal/base/* internal/net/* internal/device/*
internal/tool/nvmet/overrdma : internal/roce/* internal/base/* internal/net/* internal/device/*
examples/*                 : internal/*
'

# matches NAME PATTERN... succeeds if NAME is one of the patterns, or below the folder of one that ends in /*.
matches() {
	local name=$1 pattern
	shift
	for pattern; do
		[ "$name" = "$pattern" ] && return 0
		case "$pattern" in
		*/\*) case "$name/" in "${pattern%\*}"*) return 0 ;; esac ;;
		esac
	done
	return 1
}

declare -A packages uses
order=()
while read -r floor row; do
	[ -n "$floor" ] || continue
	order+=("$floor")
	packages[$floor]=${row%%:*}
	uses[$floor]="${row%%:*} ${row#*:}"
done <<<"$floors"
for floor in "${order[@]}"; do # names of floors become their packages
	all=
	for use in ${uses[$floor]}; do all+=" ${packages[$use]:-$use}"; done
	uses[$floor]=$all
done

# floor_of PACKAGE prints the floor of a package.
floor_of() {
	local floor
	for floor in "${order[@]}"; do
		matches "$1" ${packages[$floor]} && { echo "$floor"; return; }
	done
	return 1
}

module=$(go list -m)
bad=0
complain() {
	echo "import order: $*" >&2
	bad=1
}
imports=$(
	for os in linux windows; do
		GOOS=$os go list -f '{{.ImportPath}} {{join .Imports " "}}' ./...
	done | sort -u
)
while read -r package imported; do
	package=${package#"$module/"}
	floor=$(floor_of "$package") || { complain "$package stands on no floor of scripts/layers.sh"; continue; }
	for use in $imported; do
		case "$use" in
		"$module"/*) use=${use#"$module/"} ;;
		*.*/*) ;;
		*) continue ;; # the standard library
		esac
		matches "$use" ${uses[$floor]} || complain "$package ($floor) must not import $use"
		while IFS=: read -r who what; do
			[ -n "$who" ] || continue
			except=
			case "$what" in *" but "*) except=${what#* but } ;; esac
			if matches "$package" $who && ! matches "$package" $except && matches "$use" ${what% but *}; then
				complain "$package must not import $use"
			fi
		done <<<"$never"
	done
done <<<"$imports"
exit $bad
