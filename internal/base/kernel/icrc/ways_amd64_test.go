//go:build !purego

package icrc

import "github.com/softmkey/softmkey/internal/base/cpu"

// ways returns all implementations that this processor can run.
func ways() (all []way) {
	for _, tier := range cpu.Available() {
		all = append(all, way{tier: tier})
		if tier == cpu.AVX512 {
			all = append(all, way{tier, true})
		}
	}
	return all
}

func (w way) String() string {
	if w.maps {
		return w.tier.String() + ", maps"
	}
	return w.tier.String()
}
