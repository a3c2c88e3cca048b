// The description of the API, by Swagger UI: requests are sent with the key of this tab.

import { ask, hideKeyForm, installKeyForm, showKeyForm, withKey } from "./key.js";

async function open() {
  const reply = await ask("openapi.json");
  if (reply.status === 401) {
    showKeyForm();
    return;
  }
  const spec = await reply.json();
  // The policy of this page refuses requests to others.
  spec.servers = spec.servers.filter(({ url }) => url === "/");
  hideKeyForm();
  window.SwaggerUIBundle({
    spec,
    dom_id: "#swagger-ui",
    requestInterceptor: (request) => {
      request.headers = withKey(request.headers);
      return request;
    },
  });
}

installKeyForm(open, () => location.reload());
open();
