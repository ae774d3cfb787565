// Numbers as people read them: three digits and a unit. One object for each kind of quantity:
// `text` with its unit, `axis` for a tick, `steps` where ticks of tens would be odd.

const NOTHING = "–";

function three(value) {
  if (value === 0) return "0";
  const size = Math.abs(value);
  if (size >= 99.95) return value.toFixed(0);
  if (size >= 9.995) return value.toFixed(1);
  return value.toFixed(2);
}

/** `value` in the largest of `units` that leaves it at least 1; trailing zeros go on axes. */
function scaled(value, units, isTick) {
  if (value === null || value === undefined) return NOTHING;
  let at = 0;
  let scaledValue = value;
  // A hair below: 999.6 would else be shown as 1000.
  while (at + 1 < units.length && Math.abs(scaledValue) >= units[at][1] * 0.9995) {
    scaledValue /= units[at][1];
    at += 1;
  }
  const isWhole = Number.isInteger(scaledValue) && (at === 0 || isTick);
  const digits = isTick ? String(Number(scaledValue.toPrecision(3))) : three(scaledValue);
  return `${isWhole ? scaledValue : digits}${units[at][0]}`;
}

function quantity(units, suffix, steps) {
  const text = (value) => {
    const number = scaled(value, units, false);
    return number === NOTHING ? number : number + suffix;
  };
  const axis = (value) => (value === 0 ? "0" : scaled(value, units, true) + suffix);
  return { text, axis, steps };
}

const THOUSANDS = [["", 1000], [" k", 1000], [" M", 1000], [" G", 1000]];
const TIMES = [[" µs", 1000], [" ms", 1000], [" s", 60]];
const BYTES = [[" B", 1024], [" KiB", 1024], [" MiB", 1024], [" GiB", 1024], [" TiB", 1024]];
const BINARY_STEPS = Array.from({ length: 50 }, (_, power) => 2 ** power);
const WHOLE_STEPS = Array.from({ length: 12 }, (_, power) => [1, 2, 5].map((n) => n * 10 ** power)).flat();

export const rate = quantity(THOUSANDS, "/s");
export const count = quantity(THOUSANDS, "", WHOLE_STEPS);
/** A number that isn't whole. */
export const number = quantity(THOUSANDS, "");
export const bytes = quantity(BYTES, "", BINARY_STEPS);
export const byteRate = quantity(BYTES, "/s", BINARY_STEPS);
/** Microseconds. */
export const time = quantity(TIMES, "");
/** Microseconds of waiting in a second. */
export const timeRate = quantity(TIMES, "/s");
/** 0 to 1. */
export const share = {
  text: (value) => (value === null || value === undefined ? NOTHING : `${three(value * 100)} %`),
  axis: (value) => `${Number((value * 100).toFixed(1))} %`,
};

const CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23",
});
const SHORT_CLOCK = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit", minute: "2-digit", hourCycle: "h23",
});
/** Of seconds since 1970: 14:03:27, and 14:03. */
export const clock = (seconds) => CLOCK.format(seconds * 1000);
export const shortClock = (seconds) => SHORT_CLOCK.format(seconds * 1000);

/** 3 h 12 min. */
export function duration(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  const [days, hours, minutes] = [whole / 86400, (whole / 3600) % 24, (whole / 60) % 60].map(Math.floor);
  if (days > 0) return `${days} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${whole % 60} s` : `${whole} s`;
}
