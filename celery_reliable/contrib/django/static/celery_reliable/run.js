// Does the steps of a long act one after the other. Without it a button does one at a time.
"use strict";
(() => {
  const form = document.getElementById("desk-step");
  if (!form || !window.fetch) {
    return;
  }
  const by = (id) => document.getElementById(id);
  const go = by("run-go");
  const pause = by("run-pause");
  const say = (text) => { by("run-state").textContent = text; };
  let goesOn = false;

  const show = (found) => {
    for (const name of ["done", "gone", "failed"]) {
      by(`run-${name}`).textContent = found[name];
    }
    for (const [name, value] of Object.entries(found.fields)) {
      form.elements.namedItem(name).value = value;
    }
    const progress = by("run-progress");
    if (progress) {
      progress.max = Math.max(progress.max, found.done);
      progress.value = found.done;
    }
    history.replaceState(null, "", found.address);
  };

  const rest = (text) => {
    goesOn = false;
    go.hidden = false;
    pause.hidden = true;
    say(text);
  };

  const steps = async () => {
    goesOn = true;
    go.hidden = true;
    pause.hidden = false;
    say("It goes on.");
    while (goesOn) {
      let found;
      try {
        const answer = await fetch(form.action, {
          method: "POST",
          body: new FormData(form),
          headers: { Accept: "application/json" },
          credentials: "same-origin",
          redirect: "error",
        });
        found = await answer.json();
        if (!answer.ok) {
          rest(found.problem || "It could not go on.");
          return;
        }
      } catch (error) {
        rest("It could not go on: look whether you are logged in, and whether the site answers.");
        return;
      }
      show(found);
      if (found.over) {
        by("desk-run").dataset.over = "yes";
        form.hidden = true;
        say("Done.");
        return;
      }
      if (found.problem) {
        rest(found.problem);
        return;
      }
    }
    rest("Not all of it is done.");
  };

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    if (!goesOn) {
      steps();
    }
  });
  pause.addEventListener("click", () => {
    goesOn = false;
    say("It ends with this step.");
  });
  if (form.dataset.go === "yes") {
    // Who comes back to the address later presses the button.
    const address = new URL(location.href);
    address.searchParams.delete("go");
    history.replaceState(null, "", address);
    steps();
  }
})();
