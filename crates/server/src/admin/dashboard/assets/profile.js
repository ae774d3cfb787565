// Profiles: a button records for some seconds, a flame graph shows what was recorded.

const KINDS = [
  ["cpu", "Processor", "processor time"],
  ["allocs", "Allocations", "memory allocations"],
  ["locks", "Lock waits", "waits for locks, syncs and stalls"],
  ["offcpu", "Off processor", "time off the processor"],
];

/** Longest and least height of the graph, in pixels. */
const HEIGHT_MIN = 160;
const HEIGHT_MAX = 1600;

export class Profiler {
  constructor(card) {
    this.state = card.querySelector(".profile-state");
    this.host = card.querySelector(".flame");
    this.seconds = card.querySelector("select");
    this.buttons = KINDS.map(([kind, label, what]) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = label;
      button.title = `Record ${what}`;
      button.dataset.kind = kind;
      button.addEventListener("click", () => this.record(kind, what));
      return button;
    });
    card.querySelector(".buttons").append(...this.buttons);
    this.say("Nothing recorded yet. A recording slows the server a little while it lasts.");
  }

  say(text, isError = false) {
    this.state.textContent = text;
    this.state.classList.toggle("is-error", isError);
  }

  async record(kind, what) {
    const seconds = Number(this.seconds.value);
    for (const button of this.buttons) button.disabled = true;
    const stopCounting = this.countDown(what, seconds);
    try {
      const response = await fetch(`/debug/profile/${kind}?seconds=${seconds}&format=svg`);
      stopCounting();
      if (response.ok) await this.show(await response.text(), kind, what, seconds);
      else this.say(await refusal(response), true);
    } catch {
      stopCounting();
      this.say("No profile: the server was lost while it recorded.", true);
    } finally {
      for (const button of this.buttons) button.disabled = false;
    }
  }

  /** Counts the seconds down until the returned function is called. */
  countDown(what, seconds) {
    const start = performance.now();
    const bar = document.createElement("progress");
    bar.max = seconds;
    const text = document.createElement("span");
    const tick = () => {
      const passed = (performance.now() - start) / 1000;
      bar.value = Math.min(passed, seconds);
      const left = Math.ceil(seconds - passed);
      text.textContent = left > 0 ? `Recording ${what}: ${left} s left` : "Drawing";
    };
    this.say("");
    this.state.append(bar, text);
    tick();
    const timer = setInterval(tick, 250);
    return () => clearInterval(timer);
  }

  /** Hands the graph to a frame of its own, where its script can run and reach nothing else. */
  async show(svg, kind, what, seconds) {
    const frame = document.createElement("iframe");
    frame.title = `Flame graph of ${what}`;
    const height = Number(/<svg[^>]*\sheight="(\d+)/.exec(svg)?.[1] ?? HEIGHT_MIN);
    frame.style.height = `${Math.min(HEIGHT_MAX, Math.max(HEIGHT_MIN, height + 8))}px`;
    frame.src = "/assets/flame.html";
    frame.addEventListener("load", () => frame.contentWindow.postMessage(svg, "*"), { once: true });
    this.host.replaceChildren(frame);
    const save = document.createElement("a");
    if (this.saved) URL.revokeObjectURL(this.saved);
    this.saved = URL.createObjectURL(new Blob([svg], { type: "image/svg+xml" }));
    save.href = this.saved;
    save.download = `tallybook-${kind}.svg`;
    save.textContent = "Save it as a file";
    this.say(`${seconds} s of ${what}. `);
    this.state.append(save);
  }
}

/** A refusal in words. */
async function refusal(response) {
  let said = "";
  try {
    said = (await response.json()).message ?? "";
  } catch {
    // It wasn't one of this server's own.
  }
  const reason = said ? `: ${said}` : ` (status ${response.status})`;
  if (response.status === 409) return `Another recording is under way${reason}. Try again when it has ended.`;
  return `No profile${reason}.`;
}
