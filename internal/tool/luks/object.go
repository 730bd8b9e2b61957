package luks

import (
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// object is an object of the JSON area. Its methods return members that must be there; the first one that is absent or
// of another kind is in wrong.
type object struct {
	path    string
	members map[string]any
	wrong   *error
}

func (o object) fail(name, kind string) {
	if *o.wrong == nil {
		*o.wrong = fmt.Errorf("the JSON area: %s%s is not %s", o.path, name, kind)
	}
}

func member[T any](o object, name, kind string) T {
	v, ok := o.members[name].(T)
	if !ok {
		o.fail(name, kind)
	}
	return v
}

func (o object) object(name string) object {
	return object{o.path + name + ".", member[map[string]any](o, name, "an object"), o.wrong}
}

func (o object) text(name string) string {
	s := member[string](o, name, "a text")
	if s == "" {
		o.fail(name, "a text")
	}
	return s
}

func (o object) number(name string) int {
	n, err := strconv.ParseUint(string(member[json.Number](o, name, "a number")), 10, 31)
	if err != nil {
		o.fail(name, "a number of 31 bits")
	}
	return int(n)
}

// size returns a number of 64 bits, which is a text.
func (o object) size(name string) uint64 {
	n, err := strconv.ParseUint(o.text(name), 10, 64)
	if err != nil {
		o.fail(name, "a text with a number of 64 bits")
	}
	return n
}

func (o object) texts(name string) (list []string) {
	for _, v := range member[[]any](o, name, "a list") {
		s, ok := v.(string)
		if !ok {
			o.fail(name, "a list of texts")
		}
		list = append(list, s)
	}
	return list
}

// optional returns a list of texts that may be absent.
func (o object) optional(name string) []string {
	if _, ok := o.members[name]; !ok {
		return nil
	}
	return o.texts(name)
}

// names returns a list of texts, each the name of a member of another object.
func (o object) names(name string, of object) []string {
	list := o.texts(name)
	for _, n := range list {
		of.object(n)
	}
	return list
}

// each returns the objects in an object whose members have numbers.
func (o object) each() iter.Seq2[string, object] {
	return func(yield func(string, object) bool) {
		for _, name := range slices.Sorted(maps.Keys(o.members)) {
			if strings.Trim(name, "0123456789") != "" {
				o.fail(name, "a number")
			}
			if !yield(name, o.object(name)) {
				return
			}
		}
	}
}
