package nvmet

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Blocks is a range of blocks.
type Blocks struct {
	First, Count uint64
}

// covers returns the part of the range that is in the n blocks from lba on.
func (b Blocks) covers(lba, n uint64) (from, to uint64) {
	end := b.First + b.Count
	return max(b.First, lba), min(end, lba+n)
}

// parseNumber reads a decimal number, or a hexadecimal one after 0x.
func parseNumber(s string) (uint64, error) {
	if digits, ok := strings.CutPrefix(s, "0x"); ok {
		return strconv.ParseUint(digits, 16, 62)
	}
	return strconv.ParseUint(s, 10, 62)
}

// parseBlocks reads LBA[+N].
func parseBlocks(v string) (b Blocks, err error) {
	first, count, more := strings.Cut(v, "+")
	if b.First, err = parseNumber(first); err != nil {
		return b, fmt.Errorf("%q: must be the number of a block, as in guard@4711", first)
	}
	b.Count = 1
	if more {
		if b.Count, err = parseNumber(count); err != nil || b.Count == 0 {
			return b, fmt.Errorf("%q: must be a number of blocks, as in guard@4711+8", count)
		}
	}
	return b, nil
}

// Part is a part of a block and its field.
type Part uint8

// The parts. Damage changes one byte of a part.
const (
	Data Part = iota
	Guard
	App
	Ref
)

var partNames = []string{"data", "guard", "app", "ref"}

// offset returns the offset of the byte that damage to a part changes.
func (p Part) offset(blockSize int) int {
	return []int{blockSize / 2, blockSize + 1, blockSize + 3, blockSize + 7}[p]
}

// Damage changes a part of blocks.
type Damage struct {
	Blocks
	Part Part
	Wire bool // on the way between host and target, not in what is read of the medium
	Once bool // only in the first transfer that has a block of the range
	done atomic.Bool
}

// ParseDamage reads [wire:]PART@LBA[+N][,once].
func ParseDamage(v string) (*Damage, error) {
	d := &Damage{}
	rest, mode, given := strings.Cut(v, ",")
	if given {
		if mode != "once" && mode != "always" {
			return nil, fmt.Errorf("%q: must be once or always", mode)
		}
		d.Once = mode == "once"
	}
	rest, d.Wire = strings.CutPrefix(rest, "wire:")
	part, where, ok := strings.Cut(rest, "@")
	if !ok {
		return nil, fmt.Errorf("%q: must be [wire:]PART@LBA[+N][,once], as in wire:guard@4711", v)
	}
	i := slices.Index(partNames, part)
	if i < 0 {
		return nil, fmt.Errorf("%q: must be one of %s", part, strings.Join(partNames, ", "))
	}
	d.Part = Part(i)
	var err error
	if d.Blocks, err = parseBlocks(where); err != nil {
		return nil, err
	}
	return d, nil
}

// hits returns the blocks of the range that are among the n blocks from lba on, unless the damage was to happen once
// and has happened.
func (d *Damage) hits(lba, n uint64) (from, to uint64, ok bool) {
	from, to = d.covers(lba, n)
	return from, to, from < to && !(d.Once && d.done.Swap(true))
}

// apply damages the blocks of the range in buf, which has n blocks from lba on, a stride apart. A part
// beyond the stride is not there.
func (d *Damage) apply(buf []byte, lba, n uint64, blockSize, stride int) (hit bool) {
	off := d.Part.offset(blockSize)
	if off >= stride {
		return false
	}
	from, to, hit := d.hits(lba, n)
	for ; hit && from < to; from++ {
		buf[int(from-lba)*stride+off] ^= 0x20
	}
	return hit
}

// Delay delays the commands that concern blocks.
type Delay struct {
	Blocks
	Time time.Duration
}

// ParseDelay reads TIME[@LBA[+N]].
func ParseDelay(v string) (*Delay, error) {
	text, where, some := strings.Cut(v, "@")
	t, err := time.ParseDuration(text)
	if err != nil || t <= 0 || t > time.Hour {
		return nil, fmt.Errorf("%q: must be a time of at most 1h, such as 500ms", text)
	}
	d := &Delay{Blocks: Blocks{0, math.MaxInt64}, Time: t}
	if some {
		if d.Blocks, err = parseBlocks(where); err != nil {
			return nil, err
		}
	}
	return d, nil
}
