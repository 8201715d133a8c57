// Numbers with their unit, by the rules of `report::figures::Unit`; a test compares the two.
const PREFIXES = {
  nanoseconds: [
    [1e9, " s"],
    [1e6, " ms"],
    [1e3, " us"],
    [1, " ns"],
  ],
  seconds: [
    [1, " s"],
    [1e-3, " ms"],
    [1e-6, " us"],
    [1e-9, " ns"],
  ],
  watts: [
    [1e9, " GW"],
    [1e6, " MW"],
    [1e3, " kW"],
    [1, " W"],
    [1e-3, " mW"],
    [1e-6, " uW"],
  ],
  joules: [
    [1e9, " GJ"],
    [1e6, " MJ"],
    [1e3, " kJ"],
    [1, " J"],
    [1e-3, " mJ"],
    [1e-6, " uJ"],
    [1e-9, " nJ"],
  ],
  per_second: [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
    [1, ""],
  ],
  count: [
    [1e9, "G"],
    [1e6, "M"],
    [1e3, "k"],
    [1, ""],
  ],
  share: [[0.01, " %"]],
  megahertz: [
    [1e3, " GHz"],
    [1, " MHz"],
  ],
};
const MISSING = "-";

/** The largest prefix with which a value of this size is at least one. */
function prefix(unit, size) {
  if (unit === "seconds" && size >= 7200) return [3600, " h"];
  if (unit === "seconds" && size >= 600) return [60, " min"];
  const steps = PREFIXES[unit];
  const plain = steps.find(([factor]) => factor === 1) ?? steps[0];
  if (size === 0) return plain;
  const smallest = unit === "per_second" || unit === "count" ? plain : steps[steps.length - 1];
  return steps.find(([factor]) => size >= factor * 0.999999) ?? smallest;
}

/** `value` with `digits` digits that count. */
function significant(value, digits) {
  if (value === 0) return "0";
  const rounded = Number(value.toExponential(digits - 1));
  const magnitude = Math.floor(Math.log10(Math.abs(rounded)));
  if (magnitude < -4 || magnitude >= 9) {
    const [mantissa, exponent] = rounded.toExponential(digits - 1).split("e");
    return `${trimmed(mantissa)}e${Number(exponent)}`;
  }
  return rounded.toFixed(Math.max(0, digits - 1 - magnitude));
}

/** Without zeros at its end. */
const trimmed = (text) => (text.includes(".") && !text.includes("e") ? text.replace(/\.?0+$/, "") : text);

function written(unit, value, digits) {
  if (value === null || value === undefined) return MISSING;
  const [factor, suffix] = prefix(unit, Math.abs(value) * (1 + 0.5 * 10 ** -digits));
  const number = value / factor;
  return Number.isFinite(number)
    ? significant(number, digits) + suffix + (unit === "per_second" ? "/s" : "")
    : MISSING;
}

/** `152 us`, and with how far it may be off: `152 us ±1.2 %`. */
function text(unit, value, spread) {
  const percent = Math.abs(spread / value) * 100;
  if (typeof spread !== "number" || !Number.isFinite(percent)) return written(unit, value, 3);
  let off = trimmed(significant(percent, 2));
  if (percent < 0.005) off = "<0.01";
  else if (percent < 0.095) off = percent.toFixed(2);
  else if (percent > 9999) off = ">9999";
  return `${written(unit, value, percent < 0.5 ? 4 : 3)} \u00b1${off} %`;
}

/** The marks of an axis: on a logarithmic one each in its own unit, else all in that of the largest. */
function ticks(unit, values, log) {
  const size = Math.max(...values.map((value) => Math.abs(value ?? 0)));
  return values.map((value) => {
    if (value === null) return null;
    const [factor, suffix] = prefix(unit, log ? Math.abs(value) : size);
    const number = trimmed(significant(value / factor, 4));
    return number === "0" && !suffix.startsWith(" ") ? "0" : number + suffix;
  });
}
