package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/softmkey/softmkey/internal/base/number"
	"github.com/softmkey/softmkey/internal/hca/session"
)

// faultFlag is a flag whose value is the faults of a network, such as "loss=1%,reorder=0.5%,seed=7".
type faultFlag struct {
	faults session.Faults
	text   string
}

// String implements pflag.Value.
func (f *faultFlag) String() string { return f.text }

// Type implements pflag.Value.
func (f *faultFlag) Type() string { return "FAULTS" }

// Set implements pflag.Value.
func (f *faultFlag) Set(s string) error {
	set := faultFlag{text: s, faults: session.Faults{Seed: 1}}
	shares := map[string]*float64{
		"loss": &set.faults.Loss, "duplicate": &set.faults.Duplicate, "reorder": &set.faults.Reorder,
		"delay": &set.faults.Delay, "corrupt": &set.faults.Corrupt, "truncate": &set.faults.Truncate,
	}
	sum := 0.0
	for _, part := range strings.Split(s, ",") {
		name, value, ok := strings.Cut(strings.TrimSpace(part), "=")
		if !ok {
			return fmt.Errorf("%q must be NAME=VALUE", part)
		}
		numbers := map[string]*uint64{"seed": &set.faults.Seed, "flip": &set.faults.Flip}
		if n := numbers[name]; n != nil {
			v, err := number.Parse(value, 64)
			if err != nil || name == "flip" && v == 0 {
				return fmt.Errorf("%s=%s must be a number from 1", name, value)
			}
			*n = v
			continue
		}
		if name == "timeout" {
			if value != "strict" {
				return fmt.Errorf("timeout=%s: must be strict", value)
			}
			set.faults.StrictTimeouts = true
			continue
		}
		share := shares[name]
		if share == nil {
			return fmt.Errorf("%q is unknown: the faults are loss, duplicate, reorder, delay, corrupt, truncate (shares of the datagrams), flip (the number of a datagram that loses a bit), timeout and seed", name)
		}
		v, err := parseShare(value)
		if err != nil {
			return fmt.Errorf("%s=%w", name, err)
		}
		*share = v
		sum += v
	}
	if sum > 1 {
		return fmt.Errorf("the shares add up to %g: a datagram has one fault at most", sum)
	}
	*f = set
	return nil
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
