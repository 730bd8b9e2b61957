package bench

import "strings"

// Cells returns the result as three cells of a table in Markdown: ours, the peer, and the ratio
// of ours to the peer. The last two are empty without a peer.
func (r *Result) Cells() string {
	cells := []string{figure(r.Ours.Median) + " " + string(r.Unit), "", ""}
	if r.Peer != nil {
		cells[1], cells[2] = figure(r.Peer.Median)+" ("+r.Peer.Name+")", figure(r.Ratio)
	}
	return strings.Join(cells, " | ")
}
