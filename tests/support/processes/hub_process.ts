/** Downloads a model into the cache of the environment, in a process of its own: `hub_process.ts NAME`. Prints the requests' result. */

import * as mx from "../../../mod.ts";

const { commit, missing } = await mx.lm.hub.pull(Deno.args[0]);
console.log(JSON.stringify({ commit, missing }));
