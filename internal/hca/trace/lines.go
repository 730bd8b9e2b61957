package trace

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/softmkey/softmkey/internal/base/lineout"
	"github.com/softmkey/softmkey/internal/base/summary"
	"github.com/softmkey/softmkey/internal/hca/adapter"
	"github.com/softmkey/softmkey/rdma"
)

// The lines of a trace. There are several for each message, so that common values are formatted
// without package fmt.

// clockText formats times as 15:04:05.000000 and keeps the text of the last second.
type clockText struct {
	second int64
	text   []byte
}

func (c *clockText) append(b []byte, t time.Time) []byte {
	if s := t.Unix(); s != c.second || c.text == nil {
		c.second, c.text = s, t.AppendFormat(c.text[:0], "15:04:05.")
	}
	b = append(b, c.text...)
	us := t.Nanosecond() / 1000
	for unit := 100_000; unit > 0; unit /= 10 {
		b = append(b, byte('0'+us/unit%10))
	}
	return b
}

// appendText appends a record as a line for people.
func appendText(b []byte, r *adapter.Record, pid int, clock *clockText) []byte {
	b = append(clock.append(b, r.Time), ' ')
	b = append(strconv.AppendInt(b, int64(pid), 10), ' ')
	b = append(append(b, r.Object...), ' ')
	b = append(appendHex(b, uint64(r.Number)), ' ')
	b = append(b, r.Action...)
	for i := range r.Fields {
		f := &r.Fields[i]
		b = append(append(append(b, ' '), f.Name...), '=')
		b = appendValue(b, f)
	}
	if r.Reason != "" {
		b = append(append(b, ": "...), lineout.Printable(r.Reason)...)
	}
	return append(b, '\n')
}

func appendHex(b []byte, n uint64) []byte {
	return strconv.AppendUint(append(b, "0x"...), n, 16)
}

// field returns the field of a record with a name, the zero value if it has none.
func field(r *adapter.Record, name string) (f adapter.Field) {
	if i := slices.IndexFunc(r.Fields, func(f adapter.Field) bool { return f.Name == name }); i >= 0 {
		f = r.Fields[i]
	}
	return f
}

// received reports whether an opcode is that of a receive request.
func received(opcode string) bool { return strings.HasPrefix(opcode, "RECV") }

// outcome returns how the request of a record ended.
func outcome(r *adapter.Record) summary.Outcome {
	switch r.Action {
	case rdma.StatusSuccess.String():
		return summary.Succeeded
	case rdma.StatusWRFlushErr.String(), "dropped":
		return summary.Flushed
	}
	return summary.Failed
}

// inHex reports whether the numbers of a field are written in hexadecimal: keys, addresses,
// signatures and numbers of objects.
func inHex(name string) bool {
	switch name {
	case "iova", "access", "qp", "srq", "imm", "invalidate", "stored", "computed":
		return true
	}
	return strings.HasSuffix(name, "key") || strings.HasSuffix(name, "addr") || strings.HasSuffix(name, "cq") || strings.HasSuffix(name, "_qp")
}

// appendValue appends the value of a field. Texts that would run into the next field get quotes.
func appendValue(b []byte, f *adapter.Field) []byte {
	var number uint64
	text := f.Text
	switch v := f.Value.(type) {
	case nil:
		if f.Text == "" {
			number = f.Number
			break
		}
	case uint32:
		number = uint64(v)
	case uint64:
		number = v
	case *[]rdma.SGE:
		return appendSGEs(b, *v)
	case *adapter.PSNRange:
		b = append(strconv.AppendUint(b, uint64(v.First), 10), '-')
		return strconv.AppendUint(b, uint64(v.Last), 10)
	default:
		if text = fmt.Sprint(v); text == "" {
			return append(b, `""`...)
		}
	}
	switch {
	case text != "" && strings.ContainsAny(text, " =\"\n") && text[0] != '[' && text[0] != '{':
		return strconv.AppendQuote(b, text)
	case text != "":
		return append(b, lineout.Printable(text)...)
	case inHex(f.Name):
		return appendHex(b, number)
	}
	return strconv.AppendUint(b, number, 10)
}

// appendSGEs appends a list of scatter/gather entries.
func appendSGEs(b []byte, list []rdma.SGE) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = append(strconv.AppendUint(b, uint64(list[i].Length), 10), " bytes from "...)
		b = append(appendHex(b, list[i].Addr), " of key "...)
		b = appendHex(b, uint64(list[i].LKey))
	}
	return append(b, ']')
}

// inJSONText reports whether JSON has the numbers of a field as strings of hexadecimal digits,
// because they may need 64 bits.
func inJSONText(name string) bool {
	switch name {
	case "iova", "stored", "computed":
		return true
	}
	return strings.HasSuffix(name, "addr")
}

// appendJSON appends a record as a line for programs.
func appendJSON(b []byte, r *adapter.Record, pid int) []byte {
	b = r.Time.AppendFormat(append(b, `{"time":"`...), time.RFC3339Nano)
	b = strconv.AppendInt(append(b, `","process":`...), int64(pid), 10)
	b = appendString(append(b, `,"kind":`...), r.Kind.String())
	b = appendString(append(b, `,"object":`...), r.Object)
	b = strconv.AppendUint(append(b, `,"number":`...), uint64(r.Number), 10)
	b = appendString(append(b, `,"action":`...), r.Action)
	if r.Reason != "" {
		b = appendString(append(b, `,"reason":`...), r.Reason)
	}
	if len(r.Fields) > 0 {
		b = append(appendMembers(append(b, `,"fields":{`...), r.Fields), '}')
	}
	return append(b, "}\n"...)
}

// appendMembers appends fields as the members of an object.
func appendMembers(b []byte, fields []adapter.Field) []byte {
	for i := range fields {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, fields[i].Name), ':')
		b = appendJSONValue(b, &fields[i])
	}
	return b
}

func appendJSONValue(b []byte, f *adapter.Field) []byte {
	switch v := f.Value.(type) {
	case nil:
		switch {
		case f.Name == "flags":
			return appendNames(b, f.Text)
		case f.Text != "":
			return appendString(b, f.Text)
		}
		return appendJSONNumber(b, f.Name, f.Number)
	case bool, int, int32, int64, uint8, uint16, uint32:
		return fmt.Append(b, v)
	case uint64:
		return appendJSONNumber(b, f.Name, v)
	case *[]rdma.SGE:
		return appendJSONSGEs(b, *v)
	case *adapter.PSNRange:
		b = strconv.AppendUint(append(b, `{"first":`...), uint64(v.First), 10)
		b = strconv.AppendUint(append(b, `,"last":`...), uint64(v.Last), 10)
		return append(b, '}')
	case adapter.Structured:
		text, err := json.Marshal(v)
		if err != nil { // the values have members that can be marshaled only
			return append(b, "null"...)
		}
		return append(b, text...)
	}
	return appendString(b, fmt.Sprint(f.Value))
}

// appendNames appends names that "|" separates as a list.
func appendNames(b []byte, names string) []byte {
	b = append(b, '[')
	for name, rest, more := strings.Cut(names, "|"); ; name, rest, more = strings.Cut(rest, "|") {
		b = appendString(b, name)
		if !more {
			return append(b, ']')
		}
		b = append(b, ',')
	}
}

func appendJSONNumber(b []byte, name string, n uint64) []byte {
	if inJSONText(name) {
		return append(appendHex(append(b, '"'), n), '"')
	}
	return strconv.AppendUint(b, n, 10)
}

// appendJSONSGEs appends a list of scatter/gather entries as objects.
func appendJSONSGEs(b []byte, list []rdma.SGE) []byte {
	b = append(b, '[')
	for i := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendHex(append(b, `{"addr":"`...), list[i].Addr), '"')
		b = strconv.AppendUint(append(b, `,"length":`...), uint64(list[i].Length), 10)
		b = strconv.AppendUint(append(b, `,"lkey":`...), uint64(list[i].LKey), 10)
		b = append(b, '}')
	}
	return append(b, ']')
}

// appendString appends a text as JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			quoted, _ := json.Marshal(s) // a string always can be
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}
