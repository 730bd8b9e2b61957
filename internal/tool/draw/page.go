package draw

import (
	"bytes"
	"fmt"
	"html"
)

// Picture is one of the pictures of a page.
type Picture struct {
	ID    string // in the page: key-1, connection-1, way-1
	Group string // the heading of the list that names it
	Title string
	SVG   []byte
}

// The style and the script of a page.
const (
	pageStyle = `body{font:14px "DejaVu Sans",Helvetica,Arial,sans-serif;margin:0;display:flex;height:100vh;color:#1b1f24}
nav{width:290px;overflow:auto;border-right:1px solid #d0d7de;padding:12px;box-sizing:border-box;flex:none}
nav h2{font-size:13px;color:#57606a;margin:14px 0 4px}
nav a{display:block;padding:3px 6px;color:#2f6fd0;text-decoration:none;border-radius:4px;overflow-wrap:anywhere}
nav a.chosen{background:#cfe3ff;color:#1b1f24}
nav a.has-bad{border-left:4px solid #cf222e}
main{overflow:auto;flex:auto;padding:12px}
section{display:none}section.chosen{display:block}
input{width:100%;box-sizing:border-box;padding:4px}
nav b{overflow-wrap:anywhere}
.zoom{position:sticky;top:0;text-align:right}`
	pageScript = `"use strict";
const links=[...document.querySelectorAll("nav a")],sections=[...document.querySelectorAll("section")];
let scale=1;
function choose(id){
  if(!document.getElementById(id))id=sections.length?sections[0].id:"";
  for(const l of links)l.classList.toggle("chosen",l.getAttribute("href")==="#"+id);
  for(const s of sections)s.classList.toggle("chosen",s.id===id);
}
function zoom(f){
  scale=Math.min(4,Math.max(0.25,scale*f));
  for(const s of document.querySelectorAll("section svg")){
    const b=s.viewBox.baseVal;s.setAttribute("width",b.width*scale);s.setAttribute("height",b.height*scale);
  }
}
document.getElementById("filter").addEventListener("input",e=>{
  const t=e.target.value.toLowerCase();
  for(const l of links)l.hidden=!l.textContent.toLowerCase().includes(t);
});
document.getElementById("in").addEventListener("click",()=>zoom(1.25));
document.getElementById("out").addEventListener("click",()=>zoom(0.8));
window.addEventListener("hashchange",()=>choose(location.hash.slice(1)));
choose(location.hash.slice(1));`
)

// Page returns an HTML page that shows the pictures, one at a time. The page loads nothing
// from elsewhere.
func Page(title string, pictures []Picture) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>%s</title>\n", html.EscapeString(title))
	fmt.Fprintf(&b, "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n")
	fmt.Fprintf(&b, "<style>%s</style></head><body>\n<nav><b>%s</b><p><input id=\"filter\" placeholder=\"filter\" aria-label=\"filter\"></p>\n", pageStyle, html.EscapeString(title))
	group := ""
	for _, p := range pictures {
		if p.Group != group {
			group = p.Group
			fmt.Fprintf(&b, "<h2>%s</h2>\n", html.EscapeString(group))
		}
		class := ""
		if bytes.Contains(p.SVG, []byte(`id="bad-block"`)) {
			class = ` class="has-bad"`
		}
		fmt.Fprintf(&b, "<a href=\"#%s\"%s>%s</a>\n", p.ID, class, html.EscapeString(p.Title))
	}
	b.WriteString("</nav>\n<main><p class=\"zoom\"><button id=\"out\">−</button> <button id=\"in\">+</button></p>\n")
	for _, p := range pictures {
		fmt.Fprintf(&b, "<section id=\"%s\">\n%s</section>\n", p.ID, p.SVG)
	}
	fmt.Fprintf(&b, "</main>\n<script>%s</script>\n</body></html>\n", pageScript)
	return b.Bytes()
}
