// The variants of the group: one line each, pressed to hide or show it.

function showVariants() {
  const variants = variantsOf(filtered()), styled = variants.filter(variant => style(variant.name));
  const chips = styled.map(variant => {
    const value = variant.mean === null ? "" : ` ${told(variant.mean)}`;
    const spread = variant.interval ? ` (95 % interval ${told(variant.interval[0])} to ${told(variant.interval[1])} over ${variant.seeds} seeds)` : "";
    const made = make("button", null, { type: "button", "aria-pressed": !chosen.hidden.includes(variant.name), title: variant.name + value + spread });
    made.append(swatch(variant.name), make("span", variant.name));
    made.onclick = () => {
      chosen.hidden = chosen.hidden.includes(variant.name) ? chosen.hidden.filter(name => name !== variant.name) : [...chosen.hidden, variant.name];
      made.setAttribute("aria-pressed", !chosen.hidden.includes(variant.name));
      refresh("curves", "charts", "costs", "parallel");
    };
    return made;
  });
  if (variants.length > styled.length) chips.push(make("p", `and ${variants.length - styled.length} more variants, in grey: filter to see them`));
  at("variants").replaceChildren(...chips);
}
