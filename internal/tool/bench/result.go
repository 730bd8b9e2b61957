package bench

// A Figure is the result of a case, in the unit of its row.
type Figure struct {
	Name   string  `json:"name"`
	Median float64 `json:"median"`
	Low    float64 `json:"quartile_1"`
	High   float64 `json:"quartile_3"`
}

// A Result is a measured Row. Zero fields of the Row are absent from its JSON.
type Result struct {
	Group     string `json:"group"`
	Operation string `json:"operation"`
	Variant   string `json:"variant,omitempty"`
	Size      int    `json:"size,omitempty"`
	Unit      Unit   `json:"unit"`

	Ours  Figure  `json:"ours"`
	Bound float64 `json:"bound,omitempty"`

	Peer   *Figure `json:"peer,omitempty"`
	Ratio  float64 `json:"ratio,omitempty"`
	Target float64 `json:"ratio_target,omitempty"`

	Limit       *Figure `json:"limit,omitempty"`
	Fraction    float64 `json:"fraction,omitempty"`
	LimitTarget float64 `json:"fraction_target,omitempty"`

	Error string `json:"error,omitempty"` // why there are no figures
}

// HasTarget reports whether there is a target to reach.
func (r *Result) HasTarget() bool { return r.Bound != 0 || r.Target != 0 || r.LimitTarget != 0 }

// Reached reports whether all targets were reached.
func (r *Result) Reached() bool {
	return r.Error == "" && r.reaches(r.Ours.Median, r.Bound) &&
		r.reaches(r.Ratio, r.Target) && r.reaches(r.Fraction, r.LimitTarget)
}

func (r *Result) reaches(value, target float64) bool {
	return target == 0 || value == target || worse(r.Unit, target, value)
}

// Beyond reports whether the target is above the machine's limit, so that no
// implementation can reach it.
func (r *Result) Beyond() bool {
	return r.Target != 0 && r.Peer != nil && r.Limit != nil && worse(r.Unit, r.Limit.Median, r.Target*r.Peer.Median)
}

// A Report holds the results, and the machine that they come from.
type Report struct {
	Machine Machine  `json:"machine"`
	Command string   `json:"command"` // command line that produced the report
	Date    string   `json:"date"`    // YYYY-MM-DD
	Results []Result `json:"results"`
}

// Count returns how many results have targets, and how many of them reached theirs.
func (r *Report) Count() (targets, reached int) {
	for i := range r.Results {
		if r.Results[i].HasTarget() {
			targets++
			if r.Results[i].Reached() {
				reached++
			}
		}
	}
	return targets, reached
}
