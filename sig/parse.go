package sig

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"syscall"

	"github.com/softmkey/softmkey/internal/base/bytesize"
	"github.com/softmkey/softmkey/internal/base/failure"
	"github.com/softmkey/softmkey/internal/base/number"
)

// MarshalText returns the form of String. An invalid format is an *operr.Error with EINVAL.
func (f Format) MarshalText() ([]byte, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	return []byte(f.String()), nil
}

// UnmarshalText reads the form of ParseFormat.
func (f *Format) UnmarshalText(text []byte) (err error) {
	*f, err = ParseFormat(string(text))
	return err
}

// String returns f in the form that ParseFormat reads, without the options that have their
// default: "t10dif:512,app=0x5678,ref=0x1".
func (f Format) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%v:%d", f.Type, f.Block())
	if f.Guard == GuardCSUM {
		b.WriteString(",guard=csum")
	}
	if f.Seed != SeedDefault {
		seed := map[bool]string{false: "0", true: "ones"}
		if usual := (Format{Type: f.Type}); f.ones() != usual.ones() {
			b.WriteString(",seed=" + seed[f.ones()])
		}
	}
	if f.AppTag != 0 {
		fmt.Fprintf(&b, ",app=%#x", f.AppTag)
	}
	if f.RefTag != 0 {
		fmt.Fprintf(&b, ",ref=%#x", f.RefTag)
	}
	if f.Flags&IgnoreApp != 0 {
		b.WriteString(",app-mask=0x0")
	} else if f.AppMask != 0 && f.AppMask != 0xFFFF {
		fmt.Fprintf(&b, ",app-mask=%#x", f.AppMask)
	}
	if f.tagged() {
		b.WriteString(flagOptions(f.flags()))
	}
	if f.nvme() {
		f.writeNVMe(&b)
	}
	return b.String()
}

// writeNVMe writes the options that only the NVMe types have.
func (f Format) writeNVMe(b *strings.Builder) {
	if f.FieldSize() != f.width() {
		fmt.Fprintf(b, ",meta=%d", f.FieldSize())
		if f.FieldFirst {
			b.WriteString(",pi-first")
		}
	}
	if least, _, _ := f.Type.storageRange(); f.storageBits() != least {
		fmt.Fprintf(b, ",sts=%d", f.storageBits())
	}
	if f.StorageTag != 0 {
		fmt.Fprintf(b, ",storage=%#x", f.StorageTag)
	}
	if f.Flags&IgnoreStorage != 0 {
		b.WriteString(",no-storage-check")
	}
}

// flagOptions returns the options for flags: a protection type if there is one with these
// flags, otherwise one option for each flag.
func flagOptions(flags Flags) string {
	s := ""
	if flags&IgnoreGuard != 0 {
		s = ",no-guard-check"
	}
	if flags&(behaviour|IgnoreRef) == Type3 {
		return s + ",type3"
	}
	if flags&IgnoreRef != 0 {
		s += ",no-ref-check"
	}
	if flags&behaviour == Type1 {
		return s
	}
	if flags&RefRemap == 0 {
		s += ",no-remap"
	}
	switch flags & (AppEscape | AppRefEscape) {
	case 0:
		s += ",no-escape"
	case AppRefEscape:
		s += ",app-ref-escape"
	case AppEscape | AppRefEscape:
		s += ",app-escape,app-ref-escape"
	}
	return s
}

// ParseFormat reads a signature in the syntax of the command line:
//
//	TYPE[:BLOCK][,OPTION]...
//
// TYPE is none, t10dif, crc32, crc32c, crc64, nvme16, nvme32 or nvme64. BLOCK is the block size, such as 512,
// 0x200 or 4K; 512 if left out. The options are
//
//	seed=0|ones          register at the start of each block; T10-DIF 0, CRCs ones
//	guard=crc|csum       T10-DIF guard; crc
//	app=N  ref=N         tags to write or compare with; 0. N is decimal, or hex after 0x
//	app-mask=N           bits of the application tag that are compared; all
//	no-app-check         the application tag is not compared, as with app-mask=0
//	no-ref-check         the reference tag is not compared
//	no-guard-check       the guard is not compared
//	type1|type2|type3    a protection type's rules; type1
//	remap|no-remap       reference tag rises or is constant, and is compared
//	app-escape           escape on the application tag
//	app-ref-escape       escape on application and reference tag together
//	no-escape            no escape
//	meta=N               NVMe: bytes of metadata; those of the field
//	pi-first             NVMe: the field is in the first bytes of the metadata; in the last
//	sts=N                NVMe: bits of the storage tag; 0 (nvme32: 16)
//	storage=N            NVMe: storage tag to write or compare with; 0
//	no-storage-check     NVMe: the storage tag is not compared
//
// The five from remap to no-escape override the protection type; an escape replaces the type's
// escape. Each option may be given once. Errors are *operr.Error with EINVAL.
func ParseFormat(s string) (Format, error) {
	f, err := parseFormat(s)
	if err == nil {
		err = f.Validate()
	}
	if err != nil {
		return Format{}, err
	}
	return f, nil
}

func parseFormat(s string) (Format, error) {
	refuse := func(format string, args ...any) (Format, error) {
		return Format{}, failure.New(opFormat, syscall.EINVAL, "%q: %s", s, fmt.Sprintf(format, args...))
	}
	head, options, more := strings.Cut(s, ",")
	name, block, sized := strings.Cut(head, ":")

	var f Format
	found := false
	for t, n := range typeNames {
		if n == name {
			f.Type, found = Type(t), true
		}
	}
	if !found {
		return refuse("no signature type %q; known are %s", name, strings.Join(typeNames[:], ", "))
	}
	if sized {
		n, ok := bytesize.Parse(block)
		if !ok || n == 0 || n > math.MaxInt32 {
			return refuse("block size %q: must be a positive number of bytes below 2G, such as 512 or 4K", block)
		}
		f.BlockSize = int(n)
	}

	given := map[string]bool{}
	for more {
		var option string
		option, options, more = strings.Cut(options, ",")
		key, value, valued := strings.Cut(option, "=")
		if given[key] {
			return refuse("option %q is given twice", key)
		}
		given[key] = true
		ok, must := true, ""
		switch key {
		case "guard":
			f.Guard, ok = choice(value, "crc", GuardCRC, "csum", GuardCSUM)
			must = "must be guard=crc or guard=csum"
		case "seed":
			f.Seed, ok = choice(value, "0", SeedZeros, "ones", SeedOnes)
			must = "must be seed=0 or seed=ones"
		case "app":
			f.AppTag, ok = parseNumber[uint16](value, 16)
			must = "must be app=N, with N from 0 to 0xffff, in decimal or in hexadecimal after 0x"
		case "ref":
			f.RefTag, ok = parseNumber[uint64](value, 64)
			must = "must be ref=N, with N from 0 to 0xffffffff (more bits with nvme32 and nvme64), in decimal or in hexadecimal after 0x"
		case "app-mask":
			if f.AppMask, ok = parseNumber[uint16](value, 16); ok && f.AppMask == 0 {
				f.Flags |= IgnoreApp
			}
			must = "must be app-mask=N, with N from 0 to 0xffff, in decimal or in hexadecimal after 0x"
		case "meta":
			n, sized := bytesize.Parse(value)
			f.Metadata, ok = int(n), sized && n > 0 && n <= maxMetadata
			must = fmt.Sprintf("must be meta=N, with N up to %d bytes", maxMetadata)
		case "pi-first":
			f.FieldFirst, ok = true, !valued
			must = "pi-first takes no value"
		case "sts":
			var bits uint16
			bits, ok = parseNumber[uint16](value, 16)
			f.StorageBits = int(bits)
			must = "must be sts=N, with N bits"
		case "storage":
			f.StorageTag, ok = parseNumber[uint64](value, 64)
			must = "must be storage=N, in decimal or in hexadecimal after 0x"
		case "no-app-check", "no-guard-check", "no-storage-check":
			ignore := map[string]Flags{"no-app-check": IgnoreApp, "no-guard-check": IgnoreGuard, "no-storage-check": IgnoreStorage}
			f.Flags, ok = f.Flags|ignore[key], !valued
			must = key + " takes no value"
		default:
			if !slices.Contains(strings.Split(flagNames, ", "), key) {
				return refuse("no option %q; the options of %v are %s", option, f.Type, optionsOf(f.Type))
			}
			ok, must = !valued, fmt.Sprintf("%s takes no value", key)
		}
		if !ok {
			return refuse("option %q: %s", option, must)
		}
	}
	flags, err := givenFlags(given)
	if err != "" {
		return refuse("%s", err)
	}
	f.Flags |= flags
	return f, nil
}

// optionsOf lists the options that a type has, for error messages.
func optionsOf(t Type) string {
	switch t {
	case NoSignature:
		return "none"
	case T10DIF:
		return "app=N, ref=N, app-mask=N, guard=crc|csum, seed=0|ones, " + flagNames
	case NVMe16, NVMe32, NVMe64:
		return "app=N, ref=N, app-mask=N, meta=N, pi-first, sts=N, storage=N, no-storage-check, " + flagNames
	}
	return "seed=0|ones"
}

const flagNames = "type1, type2, type3, remap, no-remap, app-escape, app-ref-escape, no-escape, no-app-check, no-ref-check, no-guard-check"

// choice returns one of two values by its name.
func choice[T any](value, name0 string, v0 T, name1 string, v1 T) (T, bool) {
	if value == name1 {
		return v1, true
	}
	return v0, value == name0
}

func parseNumber[T uint16 | uint64](s string, bits int) (T, bool) {
	n, err := number.Parse(s, bits)
	return T(n), err == nil
}

// protectionTypes are the flags of the options that name a protection type.
var protectionTypes = map[string]Flags{"type1": Type1, "type2": Type1, "type3": Type3}

// givenFlags returns the flags that options of flagNames give, which may come in any order, or the reason why they
// cannot be combined. It is zero for options that give the default.
func givenFlags(given map[string]bool) (Flags, string) {
	flags, types := Type1, 0
	for name, of := range protectionTypes {
		if given[name] {
			flags, types = of, types+1
		}
	}
	var escapes Flags
	if given["app-escape"] {
		escapes |= AppEscape
	}
	if given["app-ref-escape"] {
		escapes |= AppRefEscape
	}
	switch {
	case types > 1:
		return 0, "more than one protection type"
	case given["remap"] && given["no-remap"]:
		return 0, "both remap and no-remap"
	case given["no-escape"] && escapes != 0:
		return 0, "both no-escape and an escape"
	}
	if given["remap"] || given["no-remap"] {
		flags &^= RefRemap | IgnoreRef
	}
	if given["remap"] {
		flags |= RefRemap
	}
	if given["no-ref-check"] {
		flags |= IgnoreRef
	}
	if given["no-escape"] || escapes != 0 {
		flags = flags&^behaviour | flags&RefRemap | escapes
	}
	switch flags & behaviour {
	case Type1:
		flags &^= behaviour // formats with the same meaning compare equal
	case 0:
		flags |= Plain
	}
	return flags, ""
}
