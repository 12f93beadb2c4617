// Nobody gets in without the link or the password. Says how to get in, and nothing else.
import { useEffect, useState } from "preact/hooks";
import { ask, Refused } from "../api/http";
import { Mark } from "../parts/icons";

export function LockedOut() {
  const [password, setPassword] = useState("");
  const [words, setWords] = useState("");
  const [takesPassword, setTakes] = useState(false);
  useEffect(() => {
    ask<{ password: boolean }>("/login").then((found) => setTakes(found.password), () => setTakes(true));
  }, []);
  const enter = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await ask("/login", { body: { password } });
      location.reload();
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      setWords(`${error.message} ${error.hint}`);
    }
  };
  return (
    <main class="locked">
      <Mark />
      <h1>This Loom is locked</h1>
      <p>
        Open the link that <code>loom web</code> prints on the computer where Loom runs. It works once; afterwards this browser is
        remembered.
      </p>
      {takesPassword && <form onSubmit={(event) => void enter(event)}>
        <label>
          Or enter the password
          <input type="password" autocomplete="current-password" required value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary">Unlock</button>
      </form>}
      <p role="alert" class="grave">{words}</p>
    </main>
  );
}
