package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/session"
)

// networkFaults is the kind of a flag whose value lists faults of a network, such as "loss=1%,reorder=0.5%,seed=7".
var networkFaults = kind[session.Faults]{"FAULTS", parseFaults, nil}

func parseFaults(s string) (session.Faults, error) {
	f := session.Faults{Seed: 1}
	shares := map[string]*float64{
		"loss": &f.Loss, "duplicate": &f.Duplicate, "reorder": &f.Reorder, "delay": &f.Delay, "corrupt": &f.Corrupt, "truncate": &f.Truncate,
	}
	sum := 0.0
	for _, part := range strings.Split(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return f, fmt.Errorf("%q must be NAME=VALUE", part)
		}
		numbers := map[string]*uint64{"seed": &f.Seed, "flip": &f.Flip}
		if n := numbers[name]; n != nil {
			v, err := number.Parse(value, 64)
			if err != nil || name == "flip" && v == 0 {
				return f, fmt.Errorf("%s=%s must be a number from 1", name, value)
			}
			*n = v
			continue
		}
		if name == "timeout" {
			if value != "strict" {
				return f, fmt.Errorf("timeout=%s: must be strict", value)
			}
			f.StrictTimeouts = true
			continue
		}
		share := shares[name]
		if share == nil {
			return f, fmt.Errorf("%q is unknown: the faults are loss, duplicate, reorder, delay, corrupt, truncate (shares of the datagrams), flip (the number of a datagram that loses a bit), timeout and seed", name)
		}
		v, err := parseShare(value)
		if err != nil {
			return f, fmt.Errorf("%s=%w", name, err)
		}
		*share = v
		sum += v
	}
	if sum > 1 {
		return f, fmt.Errorf("the shares add up to %g: a datagram has one fault at most", sum)
	}
	return f, nil
}

// parseShare reads a share, in percent or as a fraction of 1. A whole number needs its unit: 1 is every packet here, and
// one of a hundred to those who know tc-netem(8).
func parseShare(s string) (float64, error) {
	percent, isPercent := strings.CutSuffix(s, "%")
	v, err := strconv.ParseFloat(percent, 64)
	if isPercent {
		v /= 100
	}
	switch {
	case err == nil && v >= 1 && v <= 100 && !isPercent:
		return 0, fmt.Errorf("%s: the unit is missing: %[1]s%% or, as a fraction, %g", s, v/100)
	case err != nil || !(v >= 0 && v <= 1):
		return 0, fmt.Errorf("%s: must be a share from 0%% to 100%%, or a fraction below 1", s)
	}
	return v, nil
}
