// Shown without a valid login: how to get one, and nothing else.
import { useEffect, useState } from "preact/hooks";
import { request, ApiError } from "../api/http";
import { Logo } from "../parts/icons";
import { rememberAddress } from "../state/login_return";

export function Login() {
  const [password, setPassword] = useState("");
  const [error, setError] = useState("");
  const [hasPassword, setHasPassword] = useState(false);
  useEffect(() => {
    rememberAddress();
    request<{ password: boolean }>("/login").then((found) => setHasPassword(found.password), () => setHasPassword(true));
  }, []);
  const enter = async (event: Event): Promise<void> => {
    event.preventDefault();
    try {
      await request("/login", { body: { password } });
      location.reload();
    } catch (failure) {
      if (!(failure instanceof ApiError)) throw failure;
      setError(`${failure.message} ${failure.hint}`);
    }
  };
  return (
    <main class="locked">
      <Logo />
      <h1>Sign in to Loom</h1>
      <p>
        Run <code>loom web</code> on the computer where Loom runs and open the link that it prints. The link works once and keeps
        this browser signed in.
      </p>
      {hasPassword && <form onSubmit={(event) => void enter(event)}>
        <label>
          Password
          <input type="password" autocomplete="current-password" required value={password} onInput={(event) => setPassword(event.currentTarget.value)} />
        </label>
        <button type="submit" class="primary">Sign in</button>
      </form>}
      <p role="alert" class="danger">{error}</p>
    </main>
  );
}
