"""`generate` of KerasHub's language models: one call is one execution of one compiled loop over tokens.

    CausalLM.generate --> make_generate_function --> GenerateFunction --> StepLoop of one step --> tokens
                                                        |
                                        model.generate_step: prompt, cache of keys and values, sampler's loop

    generate_function.py   GenerateFunction: what both back ends share; each back end's part is in
                           tensorflow_generate.py and jax_generate.py
    session.py             GeneratorSession: turns of one text, the cache kept on the device between them
    token_stream.py        tokens to a function as they are made; token_iterator.py: TokenIterator, for `stream=True`
    prompt_checks.py       which prompts, stop tokens and samplers are refused
    kerashub.py            which method of KerasHub is replaced

Enters: prompts. Leaves: tokens, as KerasHub's own function returns them. KerasHub is not imported here.
Start with `generate_function.py`.
"""
